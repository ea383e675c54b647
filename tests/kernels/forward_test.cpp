// Every forward kernel in float64 against its formula, written out in loops.
#include "kernels/support.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/kernels/norm.h"

#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::kernels::test {
namespace {

constexpr double kTolerance = 1e-12;  // float64, sums of at most a few hundred terms of size one

double* data(at::Tensor& x) { return x.mutable_data_ptr<double>(); }
const double* data(const at::Tensor& x) { return x.const_data_ptr<double>(); }

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {  // a [M, K] times b [K, N]
  at::Tensor c = at::zeros({a.size(0), b.size(1)}, a.options());
  for (int64_t i = 0; i < a.size(0); ++i) {
    for (int64_t k = 0; k < a.size(1); ++k) {
      for (int64_t j = 0; j < b.size(1); ++j) {
        data(c)[i * b.size(1) + j] += data(a)[i * a.size(1) + k] * data(b)[k * b.size(1) + j];
      }
    }
  }
  return c;
}

TEST(Forward, LinearIsThreeProducts) {
  const at::Tensor x = random({7, 5}, at::kDouble, 1);
  const at::Tensor w = random({3, 5}, at::kDouble, 2);
  const at::Tensor b = random({3}, at::kDouble, 3);
  const at::Tensor dy = random({7, 3}, at::kDouble, 4);
  EXPECT_LT(max_difference(linear_forward(x, w), product(x, w.t().contiguous())), kTolerance);
  EXPECT_LT(max_difference(linear_forward(x, w, b) - linear_forward(x, w), b.expand({7, 3})), kTolerance);
  EXPECT_LT(max_difference(linear_backward_input(dy, w), product(dy, w)), kTolerance);
  EXPECT_LT(max_difference(linear_backward_weight(dy, x), product(dy.t().contiguous(), x)), kTolerance);
  EXPECT_LT(max_difference(linear_backward_bias(dy), dy.sum(0)), kTolerance);
}

TEST(Forward, RmsNormDividesByTheRootMeanSquare) {
  at::Tensor x = random({5, 19}, at::kDouble, 1);
  const at::Tensor w = random({19}, at::kDouble, 2);
  const auto result = rms_norm_forward(x, w, 1e-3, at::kDouble);
  const at::Tensor expected = x / (x.pow(2).mean(1, true) + 1e-3).sqrt() * w;
  EXPECT_LT(max_difference(result.y_RN, expected), kTolerance);
  EXPECT_TRUE(same_bits(rms_norm_apply(x, result.rstd_R, w, at::kDouble), result.y_RN));

  const at::Tensor delta = random({5, 19}, at::kDouble, 3);
  const at::Tensor sum = x + delta;
  const auto fused = add_rms_norm_forward(x, delta, w, 1e-3, at::kDouble);
  EXPECT_TRUE(same_bits(x, sum));
  EXPECT_TRUE(same_bits(fused.y_RN, rms_norm_forward(sum, w, 1e-3, at::kDouble).y_RN));
}

TEST(Forward, RopeTurnsPairsByTheirPosition) {
  at::Tensor x = random({4, 2, 6}, at::kDouble, 1);
  const at::Tensor before = x.clone();
  const at::Tensor positions = ints({0, 5, 1, 49});
  const RopeTable table = small_rope_table(6, 50, at::kDouble);
  rope_forward(x, positions, table);
  for (int64_t t = 0; t < 4; ++t) {
    for (int64_t n = 0; n < 2; ++n) {
      for (int64_t i = 0; i < 3; ++i) {
        const double angle =
            positions.const_data_ptr<int32_t>()[t] * std::pow(10000.0, -2.0 * static_cast<double>(i) / 6);
        const double a = data(before)[(t * 2 + n) * 6 + i];
        const double b = data(before)[(t * 2 + n) * 6 + i + 3];
        EXPECT_NEAR(data(x)[(t * 2 + n) * 6 + i], a * std::cos(angle) - b * std::sin(angle), kTolerance);
        EXPECT_NEAR(data(x)[(t * 2 + n) * 6 + i + 3], b * std::cos(angle) + a * std::sin(angle), kTolerance);
      }
    }
  }
  rope_backward(x, positions, table);
  EXPECT_LT(max_difference(x, before), kTolerance) << "the backward pass is the inverse turn";
}

TEST(Forward, RopeTableFormsAnglesInFloat32) {
  const at::Tensor frequency = at::zeros({1}, at::kDouble);
  frequency.mutable_data_ptr<double>()[0] = 0.1;
  const RopeTable table = rope_table(frequency, 1001, 2.0, at::kBFloat16);
  ASSERT_EQ(table.cos_PD2.scalar_type(), at::kFloat);
  const double angle = 1000.0F * 0.1F;
  EXPECT_EQ(table.cos_PD2.const_data_ptr<float>()[1000], 2.0F * static_cast<float>(std::cos(angle)));
  EXPECT_EQ(table.sin_PD2.const_data_ptr<float>()[1000], 2.0F * static_cast<float>(std::sin(angle)));
}

/// Attention of one document by its formula, with the keep factor of every probability given.
at::Tensor attention_by_formula(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double scale,
                                const AttentionDropout& dropout, uint64_t ordinal, bool causal = true) {
  at::Tensor o = at::zeros_like(q);
  const int64_t length = q.size(0);
  const int64_t heads = q.size(1);
  const int64_t kv_heads = k.size(1);
  const int64_t width = q.size(2);
  for (int64_t n = 0; n < heads; ++n) {
    const int64_t kv = n / (heads / kv_heads);
    const RandomStream stream{dropout.seed, RandomPurpose::Dropout, dropout.module, ordinal, static_cast<uint32_t>(n)};
    for (int64_t i = 0; i < length; ++i) {
      std::vector<double> p;
      double sum = 0;
      for (int64_t j = 0; j < (causal ? i + 1 : length); ++j) {
        double s = 0;
        for (int64_t c = 0; c < width; ++c) {
          s += data(q)[(i * heads + n) * width + c] * data(k)[(j * kv_heads + kv) * width + c];
        }
        p.push_back(std::exp(s * scale));
        sum += p.back();
      }
      for (int64_t j = 0; j < (causal ? i + 1 : length); ++j) {
        const uint32_t word = stream.word((static_cast<uint64_t>(i) << 20) + static_cast<uint64_t>(j));
        const double keep = word * 0x1p-32 < dropout.probability ? 0 : 1 / (1 - dropout.probability);
        for (int64_t c = 0; c < width; ++c) {
          data(o)[(i * heads + n) * width + c] +=
              p[static_cast<size_t>(j)] / sum * keep * data(v)[(j * kv_heads + kv) * width + c];
        }
      }
    }
  }
  return o;
}

TEST(Forward, AttentionOverWholeDocumentsSeesLaterTokens) {
  const std::vector<int64_t> starts{0, 3, 4, 44, 450};
  const std::vector<uint64_t> ordinals{8, 1, 5, 1000};
  const at::Tensor q = random({450, 3, 8}, at::kDouble, 1);
  const at::Tensor k = random({450, 3, 8}, at::kDouble, 2);
  const at::Tensor v = random({450, 3, 8}, at::kDouble, 3);
  for (const double probability : {0.0, 0.25}) {
    const AttentionConfig config{.scale = 0.7, .dropout = {probability, 21, 3, ordinals}, .causal = false};
    const at::Tensor o = attention_forward(q, k, v, starts, config).o_TND;
    for (size_t d = 0; d + 1 < starts.size(); ++d) {
      const auto part = [&](const at::Tensor& x) { return x.slice(0, starts[d], starts[d + 1]).contiguous(); };
      const at::Tensor expected =
          attention_by_formula(part(q), part(k), part(v), config.scale, config.dropout, ordinals[d], false);
      EXPECT_LT(max_difference(part(o), expected), kTolerance) << "document " << d << ", dropout " << probability;
    }
  }
}

TEST(Forward, AttentionIsCausalGroupedAndKeepsDocumentsApart) {
  const std::vector<int64_t> starts{0, 3, 4, 44, 450};
  const std::vector<uint64_t> ordinals{8, 1, 5, 1000};
  const at::Tensor q = random({450, 6, 8}, at::kDouble, 1);
  const at::Tensor k = random({450, 2, 8}, at::kDouble, 2);
  const at::Tensor v = random({450, 2, 8}, at::kDouble, 3);
  for (const double probability : {0.0, 0.25}) {
    const AttentionConfig config{0.7, {probability, 21, 3, ordinals}};
    const at::Tensor o = attention_forward(q, k, v, starts, config).o_TND;
    for (size_t d = 0; d + 1 < starts.size(); ++d) {
      const auto part = [&](const at::Tensor& x) { return x.slice(0, starts[d], starts[d + 1]).contiguous(); };
      const at::Tensor expected =
          attention_by_formula(part(q), part(k), part(v), config.scale, config.dropout, ordinals[d]);
      EXPECT_LT(max_difference(part(o), expected), kTolerance) << "document " << d << ", dropout " << probability;
    }
  }
}

TEST(Forward, DropoutDropsItsShare) {
  const std::vector<int64_t> starts{0, 200};
  const std::vector<uint64_t> ordinals{3};
  // All scores equal and v all ones: o is the sum of kept probabilities, 1 on average.
  const at::Tensor q = at::zeros({200, 2, 8}, at::kDouble);
  const at::Tensor v = at::zeros({200, 2, 8}, at::kDouble) + 1;
  const at::Tensor o = attention_forward(q, q, v, starts, {1.0, {0.4, 1, 1, ordinals}}).o_TND;
  // 40,200 draws; row i averages over i + 1 of them: the mean's variance is p / (1 - p) * mean of 1 / (i + 1) / 400.
  EXPECT_NEAR(o.mean().item<double>(), 1.0, 5 * std::sqrt(0.4 / 0.6 * 5.9 / 200 / 400));
  EXPECT_GT(o.std().item<double>(), 0.05);
}

TEST(Forward, SwigluIsSiluTimesUp) {
  const at::Tensor gate = random({3, 21}, at::kDouble, 1) * 20;
  const at::Tensor up = random({3, 21}, at::kDouble, 2);
  EXPECT_LT(max_difference(swiglu_forward(gate, up), gate / ((-gate).exp() + 1) * up), kTolerance * 20);
}

TEST(Forward, EmbeddingTakesRows) {
  const at::Tensor w = random({10, 7}, at::kBFloat16, 1);
  const at::Tensor x = embedding_forward(ints({9, 0, 9}), w, at::kFloat);
  EXPECT_TRUE(same_bits(x, w.index_select(0, longs({9, 0, 9})).to(at::kFloat)));
}

TEST(Forward, CrossEntropyGivesLossEntropyAndGradient) {
  const at::Tensor logits = random({4, 37}, at::kDouble, 1) * 5;
  const std::vector<int32_t> targets{3, 0, 36, 20};
  at::Tensor work = logits.clone();
  const auto evaluated = cross_entropy(work, ints(targets), 0.5, false);
  EXPECT_TRUE(same_bits(work, logits)) << "without a gradient the logits are left alone";
  const auto result = cross_entropy(work, ints(targets), 0.5, true);
  EXPECT_TRUE(same_bits(evaluated.nll_C, result.nll_C));
  for (int64_t r = 0; r < 4; ++r) {
    const double* z = data(logits) + r * 37;
    double sum = 0;
    for (int64_t i = 0; i < 37; ++i) sum += std::exp(z[i]);
    const int32_t target = targets[static_cast<size_t>(r)];
    double entropy = 0;
    int64_t best = 0;
    for (int64_t i = 0; i < 37; ++i) {
      const double p = std::exp(z[i]) / sum;
      entropy -= p * std::log(p);
      if (z[i] > z[best]) best = i;
      EXPECT_NEAR(data(work)[r * 37 + i], (p - (i == target)) * 0.5, kTolerance);
    }
    EXPECT_NEAR(data(result.nll_C)[r], std::log(sum) - z[target], kTolerance);
    EXPECT_NEAR(data(result.entropy_C)[r], entropy, kTolerance);
    EXPECT_EQ(result.top1_C.const_data_ptr<bool>()[r], best == target);
  }
}

TEST(Forward, OfEqualLogitsOnlyTheLowestIndexIsTheTop) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kDouble}) {
    at::Tensor logits = at::zeros({4, 100}, dtype);
    for (int64_t r = 0; r < 4; ++r) {
      logits.select(0, r).select(0, 40).fill_(2);
      logits.select(0, r).select(0, 90).fill_(2);
    }
    const auto result = cross_entropy(logits, ints({40, 90, 0, 99}), 1, false);
    const bool* top1 = result.top1_C.const_data_ptr<bool>();
    EXPECT_TRUE(top1[0]);
    EXPECT_FALSE(top1[1]);
    EXPECT_FALSE(top1[2]);
    EXPECT_FALSE(top1[3]);
  }
}

TEST(Forward, ConversionRoundsToNearestEvenAsTorchDoes) {
  at::Tensor x = random({4000}, at::kFloat, 1) * 1e-3;
  float* values = x.mutable_data_ptr<float>();
  values[0] = 1.00390625F;    // halfway between 1 and 1 + 2^-7: to even
  values[1] = 1.01171875F;    // halfway, the other way
  values[2] = 1e-40F;         // denormal
  values[3] = 3.4e38F;        // rounds to infinity
  values[4] = std::numeric_limits<float>::infinity();
  values[5] = -0.0F;
  const at::Tensor rounded = convert(x, at::kBFloat16);
  EXPECT_TRUE(same_bits(rounded, x.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(convert(rounded, at::kFloat), rounded.to(at::kFloat)));
  EXPECT_TRUE(same_bits(convert(x, at::kDouble), x.to(at::kDouble)));
  EXPECT_TRUE(same_bits(convert(x.to(at::kDouble), at::kFloat), x));
  EXPECT_TRUE(same_bits(convert(x, at::kHalf), x.to(at::kHalf)));
  values[0] = std::nanf("");
  EXPECT_TRUE(std::isnan(convert(x, at::kBFloat16).to(at::kFloat).const_data_ptr<float>()[0]));
}

TEST(Forward, RowsMoveAndSumsAdd) {
  const at::Tensor x = random({6, 5}, at::kBFloat16, 1);
  const at::Tensor rows = longs({4, 1});
  const at::Tensor taken = gather_rows(x, rows);
  EXPECT_TRUE(same_bits(taken, x.index_select(0, rows)));
  at::Tensor out = at::zeros({6, 5}, at::kBFloat16);
  scatter_rows(out, rows, taken);
  EXPECT_TRUE(same_bits(out.select(0, 4).contiguous(), x.select(0, 4).contiguous()));
  EXPECT_EQ(max_difference(out.select(0, 0), at::zeros({5}, at::kDouble)), 0);
  at::Tensor sum = random({6, 5}, at::kFloat, 2);
  const at::Tensor expected = sum + x.to(at::kFloat);
  add_into(sum, x);
  EXPECT_TRUE(same_bits(sum, expected));
}

}  // namespace
}  // namespace lockstep::kernels::test
