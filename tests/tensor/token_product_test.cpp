// Weight gradients in bands: against their definition, against float64, on all paths, and in the accumulator.
#include "lockstep/tensor/token_product.h"

#include "lockstep/tensor/grad_accumulator.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <thread>
#include <vector>

namespace lockstep::tensor {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

std::vector<TokenProductPath> product_paths() {
  std::vector<TokenProductPath> found;
  for (const auto path : {TokenProductPath::Amx, TokenProductPath::Avx512Bf16, TokenProductPath::Avx2,
                          TokenProductPath::Plain}) {
    if (runs(path)) found.push_back(path);
  }
  return found;
}

float widened(uint16_t bf16) { return std::bit_cast<float>(static_cast<uint32_t>(bf16) << 16); }
uint16_t cut_to_bf16(float value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16); }

struct Operands {
  int64_t tokens, outputs, inputs;
  std::vector<uint16_t> dy_TO, x_TI;

  float dy(int64_t t, int64_t o) const { return widened(dy_TO[static_cast<size_t>(t * outputs + o)]); }
  float x(int64_t t, int64_t i) const { return widened(x_TI[static_cast<size_t>(t * inputs + i)]); }
  TokenProduct product() const {
    return {.dy_TO = dy_TO.data(), .x_TI = x_TI.data(), .tokens = tokens, .outputs = outputs, .inputs = inputs};
  }
};

/// Normal values times 2^e, e uniform in [-spread, 0].
Operands random_operands(int64_t tokens, int64_t outputs, int64_t inputs, int spread = 4) {
  std::mt19937 generator(static_cast<unsigned>(tokens * 7919 + outputs * 131 + inputs));
  std::normal_distribution<float> normal;
  const auto fill = [&](int64_t count) {
    std::vector<uint16_t> values(static_cast<size_t>(count));
    for (uint16_t& value : values) {
      value = cut_to_bf16(std::ldexp(normal(generator), -static_cast<int>(generator() % (spread + 1))));
    }
    return values;
  };
  return {tokens, outputs, inputs, fill(tokens * outputs), fill(tokens * inputs)};
}

std::vector<float> product_of(const Operands& operands, TokenProductPath path) {
  std::vector<float> dw(static_cast<size_t>(operands.outputs * operands.inputs), kNotANumber);
  token_product(
      operands.product(),
      [&](int64_t first, std::span<const float> band) { std::copy(band.begin(), band.end(), dw.begin() + first); },
      path);
  return dw;
}

/// As token_product.h says, for values that never come near denormal numbers.
float defined_value(const Operands& operands, int64_t o, int64_t i) {
  float value = 0;
  for (int64_t group = 0; group < operands.tokens; group += 32) {
    float chain[2] = {0, 0};
    for (int64_t t = group; t < std::min(operands.tokens, group + 32); ++t) {
      chain[t % 2] = std::fma(operands.dy(t, o), operands.x(t, i), chain[t % 2]);
    }
    value += chain[0] + chain[1];
  }
  return value;
}

TEST(TokenProduct, IsWhatItsDefinitionSaysOnEveryPath) {
  for (const int64_t tokens : {1, 2, 15, 31, 32, 33, 64, 100, 300}) {
    const Operands operands = random_operands(tokens, 37, 41);
    for (const TokenProductPath path : product_paths()) {
      const std::vector<float> got = product_of(operands, path);
      for (int64_t o = 0; o < 37; ++o) {
        for (int64_t i = 0; i < 41; ++i) {
          ASSERT_EQ(got[static_cast<size_t>(o * 41 + i)], defined_value(operands, o, i))
              << "path " << static_cast<int>(path) << ", " << tokens << " tokens, element " << o << ", " << i;
        }
      }
    }
  }
}

/// Of a group, 16 fused multiply-adds and one addition round; then one addition per group.
TEST(TokenProduct, IsNearTheProductInDouble) {
  for (const int64_t tokens : {1, 17, 212, 700}) {
    for (const auto& [outputs, inputs] : {std::pair<int64_t, int64_t>{1, 1}, {15, 33}, {17, 1}, {130, 70}, {96, 128}}) {
      const Operands operands = random_operands(tokens, outputs, inputs);
      const std::vector<float> got = product_of(operands, best_token_product_path());
      const auto roundings = static_cast<double>(17 + (tokens + 31) / 32);
      for (int64_t o = 0; o < outputs; ++o) {
        for (int64_t i = 0; i < inputs; ++i) {
          double want = 0, magnitude = 0;
          for (int64_t t = 0; t < tokens; ++t) {
            const double term = double{operands.dy(t, o)} * double{operands.x(t, i)};
            want += term;
            magnitude += std::abs(term);
          }
          ASSERT_NEAR(got[static_cast<size_t>(o * inputs + i)], want, 1.01 * roundings * 0x1p-24 * magnitude)
              << tokens << " tokens, " << outputs << " x " << inputs << ", element " << o << ", " << i;
        }
      }
    }
  }
}

TEST(TokenProduct, EveryPathGivesTheSameBits) {
  struct Shape {
    int64_t tokens, outputs, inputs;
    int spread;  ///< 140: chains run into denormal numbers and past them
  };
  for (const Shape& s : {Shape{1, 1, 1, 4}, Shape{33, 15, 17, 4}, Shape{212, 33, 65, 4}, Shape{300, 150, 40, 20},
                         Shape{64, 64, 64, 140}, Shape{97, 40, 33, 75}, Shape{530, 33, 31, 10}, Shape{0, 3, 5, 1}}) {
    const Operands operands = random_operands(s.tokens, s.outputs, s.inputs, s.spread);
    const std::vector<float> plain = product_of(operands, TokenProductPath::Plain);
    for (const TokenProductPath path : product_paths()) {
      const std::vector<float> got = product_of(operands, path);
      EXPECT_EQ(std::memcmp(got.data(), plain.data(), plain.size() * sizeof(float)), 0)
          << "path " << static_cast<int>(path) << ", " << s.tokens << " tokens, " << s.outputs << " x " << s.inputs;
    }
  }
}

/// More columns than the second cache takes, so that bands are wide, and an odd number of rows in the last.
TEST(TokenProduct, WideBandsCoverEveryRowOnce) {
  const Operands operands = random_operands(600, 289, 1000);
  for (const TokenProductPath path : product_paths()) {
    if (path == TokenProductPath::Plain) continue;  // minutes
    std::vector<int> taken(289 * 1000, 0);
    std::vector<float> got(taken.size());
    token_product(
        operands.product(),
        [&](int64_t first, std::span<const float> values) {
          EXPECT_EQ(first % 1000, 0);
          EXPECT_EQ(values.size() % 1000, 0u);
          std::copy(values.begin(), values.end(), got.begin() + first);
          for (size_t i = 0; i < values.size(); ++i) ++taken[static_cast<size_t>(first) + i];
        },
        path);
    EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), std::ssize(taken));
    for (const int64_t o : {0, 63, 64, 127, 128, 288}) {
      for (int64_t i = 0; i < 1000; i += 111) {
        EXPECT_EQ(got[static_cast<size_t>(o * 1000 + i)], defined_value(operands, o, i)) << o << ", " << i;
      }
    }
  }
}

TEST(TokenProduct, IsNotFiniteWhereAnOperandIsNot) {
  for (const float bad : {kInfinite, -kInfinite, kNotANumber}) {
    Operands operands = random_operands(40, 20, 20);
    operands.dy_TO[35 * 20 + 7] = cut_to_bf16(bad);
    for (const TokenProductPath path : product_paths()) {
      const std::vector<float> got = product_of(operands, path);
      for (int64_t o = 0; o < 20; ++o) {
        EXPECT_EQ(std::isfinite(got[static_cast<size_t>(o * 20)]), o != 7) << "path " << static_cast<int>(path);
      }
    }
  }
}

/// oneDNN keeps tiles configured between its products, and other kernels mind denormal numbers.
TEST(TokenProduct, LeavesTheProcessorAsItFoundIt) {
  const auto bf16 = at::TensorOptions().dtype(at::kBFloat16);
  const at::Tensor a = at::ones({64, 96}, bf16), b = at::ones({96, 80}, bf16);
  const Operands operands = random_operands(50, 40, 40);
  for (const TokenProductPath path : product_paths()) {
    const at::Tensor before = at::mm(a, b);
    const unsigned mode = _mm_getcsr();
    product_of(operands, path);
    EXPECT_EQ(_mm_getcsr() & 0xFFC0, mode & 0xFFC0);
    EXPECT_TRUE(at::mm(a, b).eq(before).all().item<bool>());
  }
}

// ---- in the accumulator --------------------------------------------------------------------------------------------

/// Stripes of 65,536 elements end inside rows.
constexpr int64_t kOutputs = 500, kInputs = 300;

ParamLayout layout_of_products() {
  return ParamLayout({{.name = "small", .shape = {5, 7}, .block = 0},
                      {.name = "w", .shape = {kOutputs, kInputs}, .block = 0},
                      {.name = "whole", .shape = {128, 192}, .block = 0}});
}
constexpr ParamId kW = 1, kWhole = 2;

at::Tensor tensor_of(const std::vector<uint16_t>& values, int64_t rows, int64_t columns) {
  at::Tensor out = at::empty({rows, columns}, at::TensorOptions().dtype(at::kBFloat16));
  std::memcpy(out.mutable_data_ptr(), values.data(), values.size() * 2);
  return out;
}

struct Pair {
  at::Tensor dy_TO, x_TI;
  explicit Pair(const Operands& o)
      : dy_TO(tensor_of(o.dy_TO, o.tokens, o.outputs)), x_TI(tensor_of(o.x_TI, o.tokens, o.inputs)) {}
};

struct BegunProducts {
  explicit BegunProducts(const ParamLayout& layout, Reduction reduction = Reduction::Exact,
                         int scale_bits = kDefaultScaleBits)
      : grads(layout, reduction, 1) {
    const auto count = static_cast<size_t>(layout.num_params());
    grads.begin_update(std::vector<int>(count, scale_bits), std::vector<int64_t>(count, 16));
  }
  GradAccumulator grads;
};

TEST(AddProduct, AddsTheFloatsWithoutRoundingThemToBfloat16) {
  const ParamLayout layout = layout_of_products();
  for (const Reduction reduction : {Reduction::Exact, Reduction::Float32}) {
    BegunProducts begun(layout, reduction), expected(layout, reduction);
    GradAccumulator& products = begun.grads;
    GradAccumulator& floats = expected.grads;
    for (const ParamId id : {kW, kWhole}) {
      const int64_t outputs = layout.spec(id).shape[0], inputs = layout.spec(id).shape[1];
      for (const int64_t tokens : {100, 7}) {  // the first fills, the second adds
        const Operands operands = random_operands(tokens, outputs, inputs);
        const Pair pair(operands);
        EXPECT_TRUE(products.add_product(id, pair.dy_TO, pair.x_TI));
        const std::vector<float> dw = product_of(operands, best_token_product_path());
        at::Tensor grad = at::empty({outputs, inputs}, at::TensorOptions().dtype(at::kFloat));
        std::copy(dw.begin(), dw.end(), grad.mutable_data_ptr<float>());
        floats.add(id, grad);
      }
    }
    EXPECT_TRUE(products.segment(0).eq(floats.segment(0)).all().item<bool>());
    EXPECT_FALSE(products.flags(kW).any());
  }
}

TEST(AddProduct, LeavesOtherDtypesToTheCaller) {
  const ParamLayout layout = layout_of_products();
  BegunProducts begun(layout);
  GradAccumulator& grads = begun.grads;
  const Pair pair(random_operands(3, 5, 7));
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    EXPECT_FALSE(grads.add_product(0, pair.dy_TO.to(dtype), pair.x_TI.to(dtype)));
  }
  EXPECT_EQ(grads.segment(0).count_nonzero().item<int64_t>(), 0);
}

TEST(AddProduct, GivesTheSameBitsForAnyThreadsAndOrder) {
  const ParamLayout layout = layout_of_products();
  constexpr size_t kGrains = 9;
  std::vector<Pair> pairs;
  for (size_t grain = 0; grain < kGrains; ++grain) {
    pairs.emplace_back(random_operands(20 + 13 * static_cast<int64_t>(grain), kOutputs, kInputs));
  }
  const auto sum_with = [&](size_t num_threads) {
    BegunProducts begun(layout);
  GradAccumulator& grads = begun.grads;
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < num_threads; ++thread) {
      threads.emplace_back([&, thread] {
        for (size_t grain = num_threads - 1 - thread; grain < kGrains; grain += num_threads) {
          grads.add_product(kW, pairs[grain].dy_TO, pairs[grain].x_TI);
        }
      });
    }
    threads.clear();
    EXPECT_FALSE(grads.flags(kW).any());
    return grads.segment(0).clone();
  };
  const at::Tensor want = sum_with(1);
  for (const size_t num_threads : {2, 3, 5}) {
    EXPECT_TRUE(sum_with(num_threads).eq(want).all().item<bool>()) << num_threads << " threads";
  }
}

TEST(AddProduct, FlagsWhatIsNotFiniteOrOutOfRange) {
  const ParamLayout layout = layout_of_products();
  const auto flags_of = [&](float value, int scale_bits) {
    BegunProducts begun(layout, Reduction::Exact, scale_bits);
    GradAccumulator& grads = begun.grads;
    Operands operands = random_operands(30, kOutputs, kInputs);
    operands.dy_TO[29 * kOutputs + 499] = cut_to_bf16(value);
    const Pair pair(operands);
    grads.add_product(kW, pair.dy_TO, pair.x_TI);
    return grads.flags(kW);
  };
  EXPECT_FALSE(flags_of(1, 48).any());
  EXPECT_TRUE(flags_of(0x1p20F, 48).range);
  EXPECT_FALSE(flags_of(0x1p20F, 48).non_finite);
  EXPECT_FALSE(flags_of(0x1p20F, 32).any());
  EXPECT_TRUE(flags_of(kNotANumber, 48).non_finite);
  EXPECT_TRUE(flags_of(kInfinite, 48).non_finite);
}

}  // namespace
}  // namespace lockstep::tensor
