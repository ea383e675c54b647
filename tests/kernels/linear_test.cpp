// Linear layers in bf16: near float64 everywhere, and on tiles the bits that linear_amx.h promises, for every number of
// rows in a block, one and several slabs of the contraction, rows enough for a second packing, results past the caches.
#include "lockstep/kernels/linear.h"

#include "kernels/support.h"
#include "lockstep/base/grain_team.h"
#include "lockstep/kernels/cpu/amx.h"
#include "lockstep/tensor/token_product.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::kernels::test {
namespace {

const uint16_t* bits_of(const at::Tensor& x) { return static_cast<const uint16_t*>(x.const_data_ptr()); }

/// x_RK w_KC as token_product.h defines a product's bits, in float32: the contraction is its tokens.
at::Tensor defined_product(const at::Tensor& x_RK, const at::Tensor& w_KC) {
  using tensor::TokenProductPath;
  const at::Tensor x_KR = x_RK.t().contiguous();
  at::Tensor y_RC = at::empty({x_RK.size(0), w_KC.size(1)}, at::kFloat);
  const TokenProductPath path = runs(TokenProductPath::Avx2) ? TokenProductPath::Avx2 : TokenProductPath::Plain;
  token_product({.dy_TO = bits_of(x_KR),
                 .x_TI = bits_of(w_KC),
                 .tokens = w_KC.size(0),
                 .outputs = x_RK.size(0),
                 .inputs = w_KC.size(1)},
                [&](int64_t first, std::span<const float> band) {
                  std::copy(band.begin(), band.end(), y_RC.mutable_data_ptr<float>() + first);
                },
                path);
  return y_RC;
}

/// Any order of a float32 sum of n products is off by at most n 2^-24 times the sum of their magnitudes, the bias adds
/// one rounding, and y is rounded to bf16 (2^-8 of it) once. Denormal numbers may be taken for zeros.
void expect_near(const at::Tensor& got, const at::Tensor& x_RK, const at::Tensor& w_KC, const at::Tensor& bias_C) {
  const at::Tensor x = x_RK.to(at::kDouble), w = w_KC.to(at::kDouble), bias = bias_C.to(at::kDouble);
  const at::Tensor wanted = x.mm(w) + bias, magnitude = x.abs().mm(w.abs()) + bias.abs();
  const double chain = static_cast<double>(x_RK.size(1) + 1) * 0x1p-24;
  const at::Tensor bound = wanted.abs() * 0x1p-8 + magnitude * (chain * (1 + 0x1p-8)) + 0x1p-120;
  const at::Tensor excess = (got.to(at::kDouble) - wanted).abs() - bound;
  EXPECT_LE(excess.max().item<double>(), 0);
}

void expect_defined_results(int64_t rows, int64_t inner, int64_t columns) {
  SCOPED_TRACE(testing::Message() << rows << " x " << inner << " x " << columns);
  const at::Tensor x_RK = random({rows, inner}, at::kBFloat16, 1), w_CK = random({columns, inner}, at::kBFloat16, 2);
  const at::Tensor w_KC = w_CK.t().contiguous();
  const at::Tensor bias_C = random({columns}, at::kFloat, 3), rounded_bias_C = bias_C.to(at::kBFloat16).to(at::kFloat);
  const at::Tensor plain = linear_forward(x_RK, w_CK), biased = linear_forward(x_RK, w_CK, bias_C);
  const at::Tensor backward = linear_backward_input(x_RK, w_KC);
  expect_near(plain, x_RK, w_KC, at::zeros({columns}));
  expect_near(biased, x_RK, w_KC, rounded_bias_C);
  expect_near(backward, x_RK, w_KC, at::zeros({columns}));
  if (!cpu::amx::available()) return;  // the bits of products through ATen are its own
  const at::Tensor wanted = defined_product(x_RK, w_KC);
  EXPECT_TRUE(same_bits(plain, wanted.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(biased, (wanted + rounded_bias_C).to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(backward, wanted.to(at::kBFloat16)));
}

TEST(Linear, ResultsAreThoseOfTheDefinitionForAnyNumberOfRows) {
  for (int64_t rows = 1; rows <= 66; ++rows) expect_defined_results(rows, 96, 64);
}

TEST(Linear, ResultsDoNotShowHowAProductIsCut) {
  for (const auto& [rows, inner, columns] :
       {std::tuple{45, 320, 96}, {45, 352, 96}, {45, 576, 192}, {33, 1536, 64}, {450, 1536, 64}, {1057, 64, 32},
        {7, 2048, 32}, {7, 2080, 64}, {300, 3264, 160}, {700, 96, 1536}, {33, 64, 32768}}) {
    expect_defined_results(rows, inner, columns);
  }
}

TEST(Linear, ARowsBitsAreItsOwnOnTiles) {
  const at::Tensor x_RK = random({83, 640}, at::kBFloat16, 1), w_CK = random({64, 640}, at::kBFloat16, 2);
  const at::Tensor y_RC = linear_forward(x_RK, w_CK);
  for (const int64_t row : {0, 31, 32, 64, 82}) {
    const at::Tensor alone = linear_forward(x_RK.narrow(0, row, 1), w_CK);
    expect_near(alone, x_RK.narrow(0, row, 1), w_CK.t(), at::zeros({64}));
    const bool promised = cpu::amx::available();
    EXPECT_TRUE(!promised || same_bits(alone, y_RC.narrow(0, row, 1))) << "row " << row;
  }
}

TEST(Linear, ATeamGivesTheSameBitsOnTiles) {
  const at::Tensor x_RK = random({300, 416}, at::kBFloat16, 1), w_CK = random({96, 416}, at::kBFloat16, 2);
  const at::Tensor w_KC = w_CK.t().contiguous(), alone = linear_forward(x_RK, w_CK);
  GrainTeam team(3, 2);
  const GrainTeamScope scope(&team);
  for (const at::Tensor& shared : {linear_forward(x_RK, w_CK), linear_backward_input(x_RK, w_KC)}) {
    expect_near(shared, x_RK, w_KC, at::zeros({96}));
    EXPECT_TRUE(!cpu::amx::available() || same_bits(shared, alone));
  }
}

TEST(Linear, NoRowsGiveNoResults) {
  EXPECT_EQ(linear_forward(random({0, 64}, at::kBFloat16, 1), random({32, 64}, at::kBFloat16, 2)).sizes(),
            at::IntArrayRef({0, 32}));
}

TEST(Linear, WidthsThatAreNoMultipleOf32GoElsewhere) {
  for (const auto& [inner, columns] : {std::pair{64, 2}, {40, 64}, {33, 31}}) {
    const at::Tensor x_RK = random({19, inner}, at::kBFloat16, 1), w_CK = random({columns, inner}, at::kBFloat16, 2);
    const at::Tensor wide = linear_forward(x_RK.to(at::kDouble), w_CK.to(at::kDouble));
    EXPECT_LT(relative_l2(linear_forward(x_RK, w_CK), wide), 0x1p-8);
    EXPECT_LT(relative_l2(linear_backward_input(x_RK, w_CK.t().contiguous()), wide), 0x1p-8);
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
