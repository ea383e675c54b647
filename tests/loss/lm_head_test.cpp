#include "lockstep/loss/lm_head.h"
#include "model/model_rig.h"
#include "model/test_configs.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lockstep::testing {
namespace {

using loss::head_chunk_tokens;
using loss::lm_head_backward;
using loss::lm_head_forward;
using loss::LossSums;
using loss::num_head_chunks;

TEST(HeadChunks, AreAFunctionOfTheVocabulary) {
  EXPECT_EQ(head_chunk_tokens(512), 1024);
  EXPECT_EQ(head_chunk_tokens(49152), 1024);
  EXPECT_EQ(head_chunk_tokens(100000), 640);   // 671 rounded down to a multiple of 64
  EXPECT_EQ(head_chunk_tokens(151936), 384);   // 441
  EXPECT_EQ(head_chunk_tokens(10000000), 128);
  EXPECT_EQ(num_head_chunks(0, 512), 0);
  EXPECT_EQ(num_head_chunks(1024, 512), 1);
  EXPECT_EQ(num_head_chunks(1025, 512), 2);
}

/// The head's formulas written out for one token at a time.
struct Plain {
  std::vector<double> nll, entropy;  ///< per target
  int64_t num_top1 = 0;
  std::vector<double> dx;            ///< [T, H]
  std::vector<double> dw;            ///< [V, H]
  std::vector<double> dnorm;         ///< [H]
};

Plain plain_head(const ModelRig& rig, const at::Tensor& x_TH, const model::GrainInput& grain, double divisor) {
  const at::Tensor w = rig.store().weight(rig.head().head_weight_id).to(at::kDouble).contiguous();
  const at::Tensor norm = rig.store().weight(rig.head().final_norm.weight).to(at::kDouble);
  const at::Tensor x_all = x_TH.to(at::kDouble);
  const auto V = static_cast<size_t>(w.size(0)), H = static_cast<size_t>(w.size(1));
  const auto* target = grain.target_T.const_data_ptr<int32_t>();
  const double* W = w.const_data_ptr<double>();
  const double* g = norm.const_data_ptr<double>();
  Plain out;
  out.dx.assign(static_cast<size_t>(grain.num_tokens()) * H, 0);
  out.dw.assign(V * H, 0);
  out.dnorm.assign(H, 0);
  for (size_t t = 0; t < static_cast<size_t>(grain.num_tokens()); ++t) {
    if (target[t] < 0) continue;
    const double* x = x_all.const_data_ptr<double>() + t * H;
    double square = 0;
    for (size_t h = 0; h < H; ++h) square += x[h] * x[h];
    const double rstd = 1 / std::sqrt(square / static_cast<double>(H) + rig.head().final_norm.eps);
    std::vector<double> z(V, 0), dy(H, 0);
    for (size_t v = 0; v < V; ++v)
      for (size_t h = 0; h < H; ++h) z[v] += W[v * H + h] * x[h] * rstd * g[h];
    double total = 0, entropy = 0;
    for (const double value : z) total += std::exp(value);
    for (const double value : z) entropy -= std::exp(value) / total * (value - std::log(total));
    out.nll.push_back(std::log(total) - z[static_cast<size_t>(target[t])]);
    out.entropy.push_back(entropy);
    out.num_top1 += std::max_element(z.begin(), z.end()) - z.begin() == target[t];
    for (size_t v = 0; v < V; ++v) {
      const double dz = (std::exp(z[v]) / total - (static_cast<int32_t>(v) == target[t])) / divisor;
      for (size_t h = 0; h < H; ++h) {
        dy[h] += dz * W[v * H + h];
        out.dw[v * H + h] += dz * x[h] * rstd * g[h];
      }
    }
    double dot = 0;
    for (size_t h = 0; h < H; ++h) dot += dy[h] * g[h] * x[h] * rstd;
    for (size_t h = 0; h < H; ++h) {
      out.dx[t * H + h] = rstd * (dy[h] * g[h] - x[h] * rstd * dot / static_cast<double>(H));
      out.dnorm[h] += dy[h] * x[h] * rstd;
    }
  }
  return out;
}

double largest_difference(const at::Tensor& got, const std::vector<double>& wanted) {
  const at::Tensor wide = got.to(at::kDouble).contiguous();
  EXPECT_EQ(static_cast<size_t>(wide.numel()), wanted.size());
  double largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i)
    largest = std::max(largest, std::abs(wide.const_data_ptr<double>()[i] - wanted[i]));
  return largest;
}

double largest(const std::vector<double>& values) {
  double out = 0;
  for (const double value : values) out = std::max(out, std::abs(value));
  return out;
}

double sum(const std::vector<double>& values, size_t first, size_t count) {
  double out = 0;
  for (size_t i = first; i < first + count; ++i) out += values[i];
  return out;
}

class LmHead : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  LmHead() : rig_(small_qwen3(), GetParam()) { rig_.randomise(9, 0.4); }
  at::ScalarType stream() const { return GetParam() == at::kDouble ? at::kDouble : at::kFloat; }
  /// Relative error of a sum over `terms` products of random sign, both sides of a factor of safety of 8; bfloat16
  /// rounds a few times on the way (activation, logits, gradient of logits, product).
  double tolerance(double terms) const {
    if (GetParam() == at::kBFloat16) return 8 * 0x1p-9;
    return 8 * std::sqrt(terms) * (GetParam() == at::kFloat ? 0x1p-24 : 0x1p-53);
  }
  at::Tensor stream_of(const model::GrainInput& grain) const {
    return random_tensor({grain.num_tokens(), rig_.decoder().config().hidden_size}, stream(), 77, 2);
  }
  ModelRig rig_;
};

TEST_P(LmHead, IsTheSoftmaxCrossEntropyOfTheFormulas) {
  // 1,100 targets: more than one chunk. The second document has none.
  const int64_t V = rig_.decoder().config().vocab_size;
  const model::GrainInput grain =
      pack({random_document(901, V, 0, 0), random_document(7, V, 1, 7), random_document(206, V, 2, 5)});
  ASSERT_EQ(num_targets(grain), 1100);
  const at::Tensor x_TH = stream_of(grain);
  const Plain wanted = plain_head(rig_, x_TH, grain, 3000);

  SumSink sink(rig_.layout(), stream());
  const loss::HeadBackward got = lm_head_backward(rig_.store(), rig_.head(), x_TH, grain, 3000, sink);
  const double relative = tolerance(1100);
  ASSERT_EQ(got.nll_per_doc.size(), 3U);
  EXPECT_NEAR(got.nll_per_doc[0], sum(wanted.nll, 0, 900), relative * sum(wanted.nll, 0, 900));
  EXPECT_EQ(got.nll_per_doc[1], 0.0);
  EXPECT_NEAR(got.nll_per_doc[2], sum(wanted.nll, 900, 200), relative * sum(wanted.nll, 900, 200));
  EXPECT_NEAR(got.sums.nll.value(), sum(wanted.nll, 0, 1100), relative * sum(wanted.nll, 0, 1100));
  EXPECT_NEAR(got.sums.entropy.value(), sum(wanted.entropy, 0, 1100), relative * sum(wanted.entropy, 0, 1100));
  EXPECT_EQ(got.sums.num_targets, 1100);
  // Rounding may change the order of two logits that are nearly equal.
  EXPECT_NEAR(static_cast<double>(got.sums.num_top1), static_cast<double>(wanted.num_top1),
              GetParam() == at::kBFloat16 ? 11 : 0);

  EXPECT_LT(largest_difference(got.dx_TH, wanted.dx), relative * largest(wanted.dx));
  EXPECT_LT(largest_difference(sink.grad(rig_.head().head_weight_id), wanted.dw), relative * largest(wanted.dw));
  EXPECT_LT(largest_difference(sink.grad(rig_.head().final_norm.weight), wanted.dnorm), relative * largest(wanted.dnorm));
  EXPECT_EQ(sink.num_contributions(), num_head_chunks(1100, V) + 1);
}

TEST_P(LmHead, ForwardAloneHasTheSumsOfTheBackward) {
  const int64_t V = rig_.decoder().config().vocab_size;
  const model::GrainInput grain = pack({random_document(80, V, 0, 10), random_document(33, V, 1, 0)});
  const at::Tensor x_TH = stream_of(grain);
  SumSink sink(rig_.layout(), stream());
  const LossSums both = lm_head_backward(rig_.store(), rig_.head(), x_TH, grain, 1, sink).sums;
  const LossSums alone = lm_head_forward(rig_.store(), rig_.head(), x_TH, grain);
  EXPECT_EQ(alone.nll.words(), both.nll.words());
  EXPECT_EQ(alone.entropy.words(), both.entropy.words());
  EXPECT_EQ(alone.num_top1, both.num_top1);
  EXPECT_EQ(alone.num_targets, both.num_targets);
}

TEST_P(LmHead, AGrainWithoutTargetsGivesZeros) {
  const model::GrainInput grain = pack({random_document(5, 48, 0, 5), random_document(3, 48, 1, 3)});
  const at::Tensor x_TH = stream_of(grain);
  SumSink sink(rig_.layout(), stream());
  const loss::HeadBackward got = lm_head_backward(rig_.store(), rig_.head(), x_TH, grain, 10, sink);
  EXPECT_EQ(largest_difference(got.dx_TH, std::vector<double>(static_cast<size_t>(x_TH.numel()), 0.0)), 0.0);
  EXPECT_EQ(got.nll_per_doc, (std::vector<double>{0, 0}));
  EXPECT_EQ(got.sums.nll.value(), 0.0);
  EXPECT_EQ(got.sums.num_targets, 0);
  EXPECT_EQ(sink.num_contributions(), 0);
  EXPECT_EQ(lm_head_forward(rig_.store(), rig_.head(), x_TH, grain).num_targets, 0);
}

TEST_P(LmHead, SumsDoNotDependOnTheOrderOfGrains) {
  std::vector<LossSums> parts;
  for (uint64_t i = 0; i < 4; ++i) {
    const model::GrainInput grain = pack({random_document(20 + static_cast<int64_t>(i), 48, i, 2)});
    parts.push_back(lm_head_forward(rig_.store(), rig_.head(), stream_of(grain), grain));
  }
  LossSums up, down;
  for (size_t i = 0; i < 4; ++i) {
    up.merge(parts[i]);
    down.merge(parts[3 - i]);
  }
  EXPECT_EQ(up.nll.words(), down.nll.words());
  EXPECT_EQ(up.entropy.words(), down.entropy.words());
  EXPECT_EQ(up.num_targets, 4 * 17 + 0 + 1 + 2 + 3);
  EXPECT_EQ(up.num_top1, down.num_top1);
}

TEST_P(LmHead, BitsDoNotDependOnAlignment) {
  const model::GrainInput grain = pack({random_document(90, 48, 0, 10), random_document(33, 48, 1, 0)});
  const at::Tensor x_TH = stream_of(grain);
  SumSink first(rig_.layout(), stream()), second(rig_.layout(), stream());
  const loss::HeadBackward a = lm_head_backward(rig_.store(), rig_.head(), x_TH, grain, 9, first);
  const loss::HeadBackward b = lm_head_backward(rig_.store(), rig_.head(), shifted_copy(x_TH), grain, 9, second);
  EXPECT_TRUE(same_bits(a.dx_TH, b.dx_TH));
  EXPECT_EQ(first.hash(), second.hash());
  EXPECT_EQ(a.sums.nll.words(), b.sums.nll.words());
}

INSTANTIATE_TEST_SUITE_P(Dtypes, LmHead, ::testing::Values(at::kDouble, at::kFloat, at::kBFloat16),
                         [](const auto& test) { return std::string(c10::toString(test.param)); });

}  // namespace
}  // namespace lockstep::testing
