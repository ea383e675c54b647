// Attention on every path this processor has: against float64, its dropout masks, and what a document may not notice.
#include "kernels/support.h"
#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"

#include <gtest/gtest.h>

#include <ATen/ops/cat.h>
#include <ATen/ops/eye.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cmath>
#include <limits>

namespace lockstep::kernels::test {
namespace {

struct Operands {
  at::Tensor q, k, v, d_o;
  Operands to(at::ScalarType dtype) const { return {q.to(dtype), k.to(dtype), v.to(dtype), d_o.to(dtype)}; }
};

/// Scores of deviation 4/3 before scaling by 1 / sqrt(width), as rounded numbers.
Operands operands(int64_t tokens, int64_t heads, int64_t kv_heads, int64_t width, at::ScalarType dtype) {
  return {random({tokens, heads, width}, dtype, 1) * 2, random({tokens, kv_heads, width}, dtype, 2) * 2,
          random({tokens, kv_heads, width}, dtype, 3), random({tokens, heads, width}, dtype, 4)};
}

struct Results {
  AttentionSaved saved;
  AttentionGrads grads;
};
Results run(const Operands& x, const std::vector<int64_t>& starts, const AttentionConfig& config) {
  Results r{attention_forward(x.q, x.k, x.v, starts, config), {}};
  r.grads = attention_backward(x.d_o, x.q, x.k, x.v, r.saved, starts, config);
  return r;
}

/// ||got - wanted|| against `bound` of ||wanted||, or of `floor` where the true value is smaller: the gradient of a
/// query that sees one key is zero, and what is left of it is the rounding of the terms that cancel.
void expect_near(const char* what, const at::Tensor& got, const at::Tensor& wanted, double bound, double floor = 0) {
  const at::Tensor wide = wanted.to(at::kDouble);
  const double error = (got.to(at::kDouble) - wide).norm().item<double>();
  EXPECT_LE(error, bound * std::max(wide.norm().item<double>(), floor)) << what;
}

struct Bounds {
  double forward, backward, lse;
};

/// In units of u, half the spacing of the dtype at 1, and of float32's where sums are float32.
/// Products: scores are rounded (u, times their size of 4/3), probabilities (u), results (u); backward also dp and ds
/// (2 u) and delta through the rounded output (u). Tiles: scores and dp stay float32.
Bounds bounds(at::ScalarType dtype, AttentionPath path, int64_t width) {
  const double u = epsilon(dtype) / 2, sums = std::sqrt(static_cast<double>(width)) * 0x1p-24;
  if (path == AttentionPath::Tiles) return {2 * u, 3 * u, 64 * 0x1p-24};
  return {4 * u + 8 * sums, 8 * u + 16 * sums, 8 * u + 16 * sums};
}

void compare(const Operands& x, const std::vector<int64_t>& starts, AttentionConfig config, const Results& wide,
             AttentionPath path) {
  const at::ScalarType dtype = x.q.scalar_type();
  config.path = path;
  const Results got = run(x, starts, config);
  const Bounds bound = bounds(dtype, path, x.q.size(2));
  EXPECT_LE(max_difference(got.saved.lse_NT, wide.saved.lse_NT), bound.lse);
  expect_near("o", got.saved.o_TND, wide.saved.o_TND, bound.forward);
  // A row of ds is a difference of terms of the size of dp.
  const double dp = x.v.to(at::kDouble).norm().item<double>();
  expect_near("dq", got.grads.dq_TND, wide.grads.dq_TND, bound.backward, dp);
  expect_near("dk", got.grads.dk_TKD, wide.grads.dk_TKD, bound.backward, dp);
  expect_near("dv", got.grads.dv_TKD, wide.grads.dv_TKD, bound.backward);
}

/// Every path of every dtype below float64 against float64 on the same rounded operands.
void check(std::vector<int64_t> starts, int64_t groups, int64_t kv_heads, int64_t width, bool causal, double dropout) {
  std::vector<uint64_t> ordinals;
  for (size_t d = 0; d + 1 < starts.size(); ++d) ordinals.push_back(7 + d + (uint64_t{d} << 33));
  const AttentionConfig config{
      .scale = 1 / std::sqrt(static_cast<double>(width)), .dropout = {dropout, 3, 5, ordinals}, .causal = causal};
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    const Operands x = operands(starts.back(), groups * kv_heads, kv_heads, width, dtype);
    const Results wide = run(x.to(at::kDouble), starts, config);
    for (const AttentionPath path : attention_paths(dtype, width)) {
      SCOPED_TRACE(testing::Message() << dtype << " path " << static_cast<int>(path) << " tokens " << starts.back()
                                      << " groups " << groups << " width " << width << " causal " << causal
                                      << " dropout " << dropout);
      compare(x, starts, config, wide, path);
    }
  }
}

TEST(Attention, IsCloseToFloat64AtEveryLength) {
  for (const int64_t length : {1, 15, 16, 17, 33, 100, 215, 1000}) {
    for (const bool causal : {true, false}) {
      check({0, length}, 3, 1, 64, causal, 0);
      if (length < 300) check({0, length}, 3, 1, 64, causal, 0.3);
    }
  }
}

TEST(Attention, IsCloseToFloat64AtEveryWidth) {
  for (const int64_t width : {32, 48, 64, 96, 128, 256}) {
    for (const bool causal : {true, false}) check({0, 40, 190}, 1, 2, width, causal, 0);
  }
}

TEST(Attention, IsCloseToFloat64WithGroupedHeads) {
  for (const int64_t groups : {1, 3, 8}) {
    for (const double dropout : {0.0, 0.1}) check({0, 1, 17, 50, 333}, groups, 2, 32, groups != 3, dropout);
  }
}

/// One document, one head, in float64, by the formula.
at::Tensor by_formula(const Operands& x, const AttentionConfig& config) {
  const int64_t T = x.q.size(0), D = x.q.size(2);
  at::Tensor out = at::zeros({T, 1, D}, at::kDouble);
  for (int64_t query = 0; query < T; ++query) {
    const int64_t first = config.window > 0 ? std::max<int64_t>(0, query - config.window + 1) : 0;
    at::Tensor score = x.k.slice(0, first, query + 1).select(1, 0).mv(x.q[query][0]) * config.scale;
    if (config.softcap > 0) score = (score / config.softcap).tanh() * config.softcap;
    const at::Tensor p = score.softmax(0);
    out[query][0].copy_(x.v.slice(0, first, query + 1).select(1, 0).t().mv(p));
  }
  return out;
}

TEST(Attention, WindowsAndCapsAreThoseOfTheFormulaWithTheGradientsOfIt) {
  const std::vector<int64_t> starts{0, 70};
  for (const auto& [window, softcap] : {std::pair{int64_t{0}, 1.5}, {int64_t{9}, 0.0}, {int64_t{33}, 2.0}, {int64_t{1}, 0.0}}) {
    SCOPED_TRACE(testing::Message() << "window " << window << " softcap " << softcap);
    const AttentionConfig config{.scale = 0.3, .dropout = {}, .window = window, .softcap = softcap};
    Operands x = operands(70, 1, 1, 8, at::kDouble);
    const Results got = run(x, starts, config);
    EXPECT_LE(max_difference(got.saved.o_TND, by_formula(x, config)), 1e-12);
    const auto objective = [&] { return (by_formula(x, config) * x.d_o).sum().item<double>(); };
    for (const auto& [operand, grad] : {std::pair{x.q, got.grads.dq_TND}, {x.k, got.grads.dk_TKD}, {x.v, got.grads.dv_TKD}}) {
      for (const int64_t i : {3, 77, 260, 401, 559}) {
        auto* value = at::Tensor(operand).mutable_data_ptr<double>() + i;
        const double kept = *value;
        *value = kept + 1e-5;
        const double above = objective();
        *value = kept - 1e-5;
        const double below = objective();
        *value = kept;
        EXPECT_NEAR(grad.const_data_ptr<double>()[i], (above - below) / 2e-5, 1e-8) << "element " << i;
      }
    }
  }
}

TEST(Attention, IsCloseToFloat64WithinWindowsAndWithCaps) {
  const std::vector<int64_t> starts{0, 40, 400, 410};
  for (const auto& [window, softcap] : {std::pair{int64_t{40}, 0.0}, {int64_t{100}, 5.0}}) {
    for (const double dropout : {0.0, 0.2}) {
      const std::vector<uint64_t> ordinals{3, 4, 5};
      const AttentionConfig config{.scale = 0.125, .dropout = {dropout, 3, 5, ordinals}, .window = window, .softcap = softcap};
      for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
        const Operands x = operands(410, 4, 2, 64, dtype);
        compare(x, starts, config, run(x.to(at::kDouble), starts, config), AttentionPath::Products);
      }
    }
  }
}

/// Keys that grow along the document: every chunk of keys raises the largest score, up to a hundred powers of two.
TEST(Attention, KeepsItsPrecisionWhileTheLargestScoreRises) {
  constexpr int64_t kTokens = 700, kWidth = 32;
  for (const bool causal : {true, false}) {
    Operands x = operands(kTokens, 2, 1, kWidth, at::kBFloat16);
    for (int64_t t = 0; t < kTokens; ++t) x.k.select(0, t).mul_(static_cast<double>(t) * 0.02);
    const std::vector<int64_t> starts{0, kTokens};
    const AttentionConfig config{.scale = 1, .dropout = {}, .causal = causal};
    const Results wide = run(x.to(at::kDouble), starts, config);
    for (const AttentionPath path : attention_paths(at::kBFloat16, kWidth)) {
      if (path == AttentionPath::Products) continue;  // its scores are rounded: a hundred times u
      AttentionConfig on_path = config;
      on_path.path = path;
      const Results got = run(x, starts, on_path);
      const double u = 0x1p-8;
      expect_near("o", got.saved.o_TND, wide.saved.o_TND, 2 * u);
      expect_near("dv", got.grads.dv_TKD, wide.grads.dv_TKD, 3 * u);
      // One key takes nearly all of a query's weight, and its dp - delta cancels: to the rounding of o, four times u.
      expect_near("dq", got.grads.dq_TND, wide.grads.dq_TND, 12 * u);
      expect_near("dk", got.grads.dk_TKD, wide.grads.dk_TKD, 12 * u);
    }
  }
}

/// The rows that fill up a tile have the score 0, which must not take part beside scores far below it.
TEST(Attention, PaddingTakesNoPartBesideVeryLowScores) {
  for (const int64_t length : {1, 17, 40}) {
    const at::Tensor q = at::full({length, 1, 64}, 30, at::kBFloat16), k = -q;
    const at::Tensor v = random({length, 1, 64}, at::kBFloat16, 3);
    for (const AttentionPath path : attention_paths(at::kBFloat16, 64)) {
      const Results got =
          run({q, k, v, v}, {0, length}, {.scale = 1, .dropout = {}, .causal = false, .path = path});
      const at::Tensor mean = v.to(at::kDouble).mean(0, true).expand(v.sizes());
      expect_near("o", got.saved.o_TND, mean, 4 * 0x1p-8);
      EXPECT_TRUE(got.grads.dq_TND.isfinite().all().item<bool>() && got.grads.dk_TKD.isfinite().all().item<bool>());
    }
  }
}

/// o[i, d] of values that are unit vectors is P[i, d]: zero where it was dropped.
at::Tensor kept_keys(int64_t tokens, int64_t first_key, const AttentionConfig& config) {
  constexpr int64_t kWidth = 128;
  const at::Tensor q = at::zeros({tokens, 2, kWidth}, at::kBFloat16), k = at::zeros({tokens, 1, kWidth}, at::kBFloat16);
  const at::Tensor v = at::zeros({tokens, 1, kWidth}, at::kBFloat16);
  const int64_t count = std::min(kWidth, tokens - first_key);
  v.slice(0, first_key, first_key + count).select(1, 0).slice(1, 0, count).copy_(at::eye(count));
  return attention_forward(q, k, v, std::vector<int64_t>{0, tokens}, config).o_TND.slice(2, 0, count) != 0;
}

TEST(Attention, DropsWhatTheStreamSays) {
  constexpr int64_t kTokens = 300;
  const std::vector<uint64_t> ordinals{(uint64_t{5} << 32) + 11};
  for (const bool causal : {true, false}) {
    for (const AttentionPath path : attention_paths(at::kBFloat16, 128)) {
      const AttentionConfig config{.scale = 1, .dropout = {0.4, 21, 3, ordinals}, .causal = causal, .path = path};
      for (const int64_t first_key : {0, 128, 256}) {
        const at::Tensor kept = kept_keys(kTokens, first_key, config);
        int64_t wrong = 0;
        for (int64_t query = 0; query < kTokens; ++query) {
          for (uint32_t head = 0; head < 2; ++head) {
            const RandomStream stream{21, RandomPurpose::Dropout, 3, ordinals[0], head};
            for (int64_t j = 0; j < kept.size(2); ++j) {
              const int64_t key = first_key + j;
              const bool wanted = (!causal || key <= query) &&
                                  stream.word((static_cast<uint64_t>(query) << 20) + static_cast<uint64_t>(key)) >=
                                      static_cast<uint32_t>(0.4 * 0x1p32);
              wrong += kept.data_ptr<bool>()[query * kept.stride(0) + head * kept.stride(1) + j] != wanted ? 1 : 0;
            }
          }
        }
        EXPECT_EQ(wrong, 0) << "path " << static_cast<int>(path) << " causal " << causal << " keys " << first_key;
      }
    }
  }
}

/// From query 2^14 on the number of a Philox block has more than 32 bits.
void expect_late_drops(int64_t width) {
  constexpr int64_t kTokens = 16500;
  const std::vector<uint64_t> ordinals{9};
  const at::Tensor zero = at::zeros({kTokens, 1, width}, at::kBFloat16);
  const at::Tensor v = at::zeros({kTokens, 1, width}, at::kBFloat16);
  v.slice(0, 0, width).select(1, 0).copy_(at::eye(width));
  const AttentionConfig config{.scale = 1, .dropout = {0.5, 21, 3, ordinals}, .causal = true};
  const at::Tensor o = attention_forward(zero, zero, v, std::vector<int64_t>{0, kTokens}, config).o_TND;
  const RandomStream stream{21, RandomPurpose::Dropout, 3, 9, 0};
  int64_t wrong = 0;
  for (const int64_t query : {16382, 16383, 16384, 16385, 16499}) {
    for (int64_t key = 0; key < width; ++key) {
      const bool wanted = stream.word((static_cast<uint64_t>(query) << 20) + static_cast<uint64_t>(key)) >= 1U << 31;
      wrong += (o[query][0][key].item<double>() != 0) != wanted ? 1 : 0;
    }
  }
  EXPECT_EQ(wrong, 0) << "width " << width;
}

TEST(Attention, DropsWhatTheStreamSaysForLateQueries) {
  expect_late_drops(32);  // tiles where the processor has them
  expect_late_drops(16);  // products everywhere
}

/// Documents in another order, so that each has other neighbours and another place in memory.
TEST(Attention, ADocumentDoesNotNoticeTheOrder) {
  const std::vector<int64_t> starts{0, 53, 70, 170, 171}, turned{0, 1, 101, 118, 171};
  const std::vector<uint64_t> ordinals{1, 2, 3, 4}, turned_ordinals{4, 3, 2, 1};
  const auto turn = [&](const at::Tensor& x) {
    std::vector<at::Tensor> parts;
    for (size_t d = 4; d-- > 0;) parts.push_back(x.slice(0, starts[d], starts[d + 1]));
    return at::cat(parts);
  };
  const Operands x = operands(171, 6, 2, 64, at::kBFloat16);
  const Operands y{turn(x.q), turn(x.k), turn(x.v), turn(x.d_o)};
  for (const AttentionPath path : attention_paths(at::kBFloat16, 64)) {
    for (const bool causal : {true, false}) {
      const Results a = run(x, starts, {0.125, {0.2, 1, 1, ordinals}, causal, path});
      const Results b = run(y, turned, {0.125, {0.2, 1, 1, turned_ordinals}, causal, path});
      EXPECT_TRUE(same_bits(turn(a.saved.o_TND), b.saved.o_TND));
      EXPECT_TRUE(same_bits(turn(a.grads.dq_TND), b.grads.dq_TND));
      EXPECT_TRUE(same_bits(turn(a.grads.dk_TKD), b.grads.dk_TKD));
      EXPECT_TRUE(same_bits(turn(a.grads.dv_TKD), b.grads.dv_TKD));
    }
  }
}

TEST(Attention, ANeighboursNanStaysWithIt) {
  const std::vector<int64_t> starts{0, 40, 57, 100};
  Operands x = operands(100, 2, 1, 64, at::kBFloat16);
  for (const AttentionPath path : attention_paths(at::kBFloat16, 64)) {
    const AttentionConfig config{.scale = 0.125, .dropout = {}, .causal = false, .path = path};
    const Results clean = run(x, starts, config);
    Operands ill{x.q.clone(), x.k.clone(), x.v.clone(), x.d_o.clone()};
    for (const at::Tensor& t : {ill.q, ill.k, ill.v, ill.d_o}) {
      t.slice(0, 40, 57).fill_(std::numeric_limits<double>::quiet_NaN());
    }
    const Results got = run(ill, starts, config);
    for (const auto& [first, end] : {std::pair{0, 40}, {57, 100}}) {
      const auto part = [&](const at::Tensor& t) { return t.slice(0, first, end).contiguous(); };
      EXPECT_TRUE(same_bits(part(got.saved.o_TND), part(clean.saved.o_TND)));
      EXPECT_TRUE(same_bits(part(got.grads.dq_TND), part(clean.grads.dq_TND)));
      EXPECT_TRUE(same_bits(part(got.grads.dk_TKD), part(clean.grads.dk_TKD)));
      EXPECT_TRUE(same_bits(part(got.grads.dv_TKD), part(clean.grads.dv_TKD)));
    }
    EXPECT_TRUE(got.saved.o_TND.slice(0, 40, 57).isnan().all().item<bool>());
  }
}

TEST(Attention, TilesAreForBf16AndWidthsOf32) {
  EXPECT_EQ(attention_path(at::kFloat, 64), AttentionPath::Products);
  EXPECT_EQ(attention_path(at::kBFloat16, 48), AttentionPath::Products);
  const Operands x = operands(5, 1, 1, 48, at::kBFloat16);
  EXPECT_THROW(run(x, {0, 5}, {.scale = 1, .dropout = {}, .path = AttentionPath::Tiles}), Error);
}

}  // namespace
}  // namespace lockstep::kernels::test
