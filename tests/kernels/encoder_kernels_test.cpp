// Kernels of the encoders against their formulas, and what a dropout mask depends on.
#include "kernels/support.h"
#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"
#include "lockstep/kernels/activation.h"
#include "lockstep/kernels/binary_cross_entropy.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::kernels::test {
namespace {

constexpr double kFloat64Tolerance = 1e-12;  // sums of at most a few hundred terms of size one

TEST(EncoderKernels, LayerNormRemovesMeanAndScale) {
  at::Tensor x = random({5, 19}, at::kDouble, 1) + 3;
  const at::Tensor w = random({19}, at::kDouble, 2), b = random({19}, at::kDouble, 3);
  const auto result = layer_norm_forward(x, w, b, 1e-3, at::kDouble);
  const at::Tensor centred = x - x.mean(1, true);
  const at::Tensor expected = centred / (centred.pow(2).mean(1, true) + 1e-3).sqrt() * w + b;
  EXPECT_LT(max_difference(result.y_RN, expected), kFloat64Tolerance);
  EXPECT_TRUE(same_bits(layer_norm_apply(x, result.moments, w, b, at::kDouble), result.y_RN));

  const at::Tensor delta = random({5, 19}, at::kDouble, 4);
  const at::Tensor sum = x + delta;
  const auto fused = add_layer_norm_forward(x, delta, w, b, 1e-3, at::kDouble);
  EXPECT_TRUE(same_bits(x, sum));
  EXPECT_TRUE(same_bits(fused.y_RN, layer_norm_forward(sum, w, b, 1e-3, at::kDouble).y_RN));
}

TEST(EncoderKernels, LayerNormIntoBfloat16IsTheRoundedFloat32) {
  const at::Tensor x = random({5, 75}, at::kFloat, 1), w = random({75}, at::kFloat, 2), b = random({75}, at::kFloat, 3);
  const auto full = layer_norm_forward(x, w, b, 1e-12, at::kFloat);
  EXPECT_TRUE(same_bits(layer_norm_apply(x, full.moments, w, b, at::kBFloat16), full.y_RN.to(at::kBFloat16)));
}

TEST(EncoderKernels, GeluIsTheNormalDistributionTimesX) {
  const at::Tensor x = random({6, 17}, at::kDouble, 1) * 5;
  const at::Tensor y = activation_forward(Activation::Gelu, x), relu = activation_forward(Activation::Relu, x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double z = x.const_data_ptr<double>()[i];
    EXPECT_NEAR(y.const_data_ptr<double>()[i], 0.5 * z * (1 + std::erf(z / std::sqrt(2.0))), kFloat64Tolerance);
    EXPECT_EQ(relu.const_data_ptr<double>()[i], std::max(z, 0.0));
  }
}

TEST(EncoderKernels, BinaryCrossEntropyIsTheNegativeLogLikelihood) {
  const at::Tensor logits = random({4, 9}, at::kDouble, 1) * 6, labels = random({4, 9}, at::kDouble, 2).abs();
  const auto result = binary_cross_entropy(logits, labels, 0.5);
  for (int64_t i = 0; i < logits.numel(); ++i) {
    const double p = 1 / (1 + std::exp(-logits.const_data_ptr<double>()[i]));
    const double y = labels.const_data_ptr<double>()[i];
    EXPECT_NEAR(result.loss_DC.const_data_ptr<double>()[i], -y * std::log(p) - (1 - y) * std::log(1 - p), 1e-12);
    EXPECT_NEAR(result.grad_DC.const_data_ptr<double>()[i], (p - y) * 0.5, kFloat64Tolerance);
  }
  const at::Tensor sure = random({1, 2}, at::kFloat, 1).fill_(60), wanted = sure.clone().fill_(1);
  EXPECT_NEAR(binary_cross_entropy(sure, wanted, 1).loss_DC.max().item<double>(), std::exp(-60.0), 1e-30)
      << "1 - p must not be rounded";
}

TEST(EncoderKernels, EmbeddingSumAddsARowOfEachTable) {
  const at::Tensor words = random({9, 6}, at::kFloat, 1), types = random({2, 6}, at::kFloat, 2);
  const at::Tensor x = embedding_sum_forward({{ints({8, 0, 3}), words}, {ints({1, 1, 0}), types}});
  EXPECT_TRUE(same_bits(x.select(0, 0).contiguous(), (words.select(0, 8) + types.select(0, 1)).contiguous()));
  EXPECT_TRUE(same_bits(x.select(0, 2).contiguous(), (words.select(0, 3) + types.select(0, 0)).contiguous()));
  try {
    embedding_sum_forward({{ints({8, 0, 3}), words}, {ints({1, 2, 0}), types}});
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("row 2 of token 1, the table has 2"), std::string::npos) << error.what();
  }
}

// ---- dropout ---------------------------------------------------------------

TEST(Dropout, FollowsTheStreamOfTheSample) {
  const std::vector<int64_t> starts{0, 2, 5};
  const std::vector<uint64_t> ordinals{70, 3};
  const Dropout config{.probability = 0.3, .seed = 5, .module = 6, .segment = 7};
  const at::Tensor x = random({5, 21}, at::kFloat, 1);
  const at::Tensor y = dropout(x, at::kFloat, starts, ordinals, config);
  for (size_t doc = 0; doc < 2; ++doc) {
    const RandomStream stream{5, RandomPurpose::Dropout, 6, ordinals[doc], 7};
    for (int64_t t = starts[doc]; t < starts[doc + 1]; ++t)
      for (int64_t c = 0; c < 21; ++c) {
        const uint32_t word = stream.word(static_cast<uint64_t>((t - starts[doc]) * 21 + c));
        const float scaled = x.const_data_ptr<float>()[t * 21 + c] * static_cast<float>(1 / 0.7);
        EXPECT_EQ(y.const_data_ptr<float>()[t * 21 + c], word * 0x1p-32 < 0.3 ? 0.0F : scaled);
      }
  }
}

TEST(Dropout, DoesNotDependOnTheGrain) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kDouble}) {
    const std::vector<int64_t> starts{0, 40, 41, 215};
    const std::vector<uint64_t> ordinals{4, 9, 2};
    const Dropout config{0.1, 11, 1, 1};
    const at::Tensor x = random({215, 33}, dtype, 1);
    const at::Tensor packed = dropout(x, dtype, starts, ordinals, config);
    for (size_t d = 0; d < ordinals.size(); ++d) {
      const auto part = [&](const at::Tensor& t) { return t.slice(0, starts[d], starts[d + 1]).contiguous(); };
      const std::vector<int64_t> alone{0, starts[d + 1] - starts[d]};
      EXPECT_TRUE(same_bits(dropout(part(x), dtype, alone, std::span(&ordinals[d], 1), config), part(packed))) << dtype;
    }
  }
}

TEST(Dropout, KeepsTheMeanAndDropsTheShareAsked) {
  const at::Tensor ones = random({1000, 100}, at::kFloat, 1).fill_(1);
  const std::vector<int64_t> starts{0, 1000};
  const std::vector<uint64_t> ordinals{1};
  const auto dropped_with = [&](uint64_t seed) {
    return dropout(ones, at::kFloat, starts, ordinals, {0.1, seed, 0, 0});
  };
  const at::Tensor y = dropped_with(1);
  // 100,000 draws: a standard deviation of 0.1 %; five of them.
  EXPECT_NEAR((y == 0).to(at::kDouble).mean().item<double>(), 0.1, 0.005);
  EXPECT_NEAR(y.to(at::kDouble).mean().item<double>(), 1, 0.006);
  EXPECT_FALSE(same_bits(dropped_with(2), y));
}

TEST(Dropout, OffItIsAConversion) {
  const at::Tensor x = random({3, 5}, at::kFloat, 1);
  const std::vector<int64_t> starts{0, 3};
  const std::vector<uint64_t> ordinals{1};
  EXPECT_TRUE(same_bits(dropout(x, at::kBFloat16, starts, ordinals, {}), x.to(at::kBFloat16)));
  EXPECT_TRUE(dropout(x, at::kFloat, starts, ordinals, {}).is_same(x));
}

TEST(Dropout, RefusesWhatDoesNotFit) {
  const at::Tensor x = random({3, 5}, at::kFloat, 1);
  const std::vector<int64_t> starts{0, 2};
  const std::vector<uint64_t> ordinals{1};
  EXPECT_THROW(dropout(x, at::kFloat, starts, ordinals, {0.5, 1, 1, 1}), Error);
  EXPECT_THROW(dropout(x, at::kFloat, starts, ordinals, {1.0, 1, 1, 1}), Error);
}

}  // namespace
}  // namespace lockstep::kernels::test
