// Linear layers in bf16 on tiles: the bits that linear_amx.h promises, for every number of rows in a block, with one and
// with several slabs of the contraction, and with rows enough for a second packing.
#include "lockstep/kernels/linear.h"

#include "kernels/support.h"
#include "lockstep/kernels/cpu/amx.h"
#include "lockstep/tensor/token_product.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::kernels::test {
namespace {

const uint16_t* bits_of(const at::Tensor& x) { return static_cast<const uint16_t*>(x.const_data_ptr()); }

/// A slab of x_RK w_KC as token_product.h defines a product's bits, in float32: the contraction is its tokens.
at::Tensor slab_product(const at::Tensor& x_RK, const at::Tensor& w_KC) {
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

/// x_RK w_KC as linear_amx.h defines it before the bias.
at::Tensor defined_product(const at::Tensor& x_RK, const at::Tensor& w_KC) {
  const int64_t groups = x_RK.size(1) / 32, num_slabs = (groups + 11) / 12;
  const int64_t slab = (groups + num_slabs - 1) / num_slabs * 32;
  at::Tensor sum;
  for (int64_t first = 0; first < x_RK.size(1); first += slab) {
    const int64_t count = std::min(slab, x_RK.size(1) - first);
    const at::Tensor part = slab_product(x_RK.narrow(1, first, count), w_KC.narrow(0, first, count));
    sum = sum.defined() ? sum + part : part;
  }
  return sum;
}

void expect_defined_bits(int64_t rows, int64_t inner, int64_t columns) {
  SCOPED_TRACE(testing::Message() << rows << " x " << inner << " x " << columns);
  const at::Tensor x_RK = random({rows, inner}, at::kBFloat16, 1), w_CK = random({columns, inner}, at::kBFloat16, 2);
  const at::Tensor bias_C = random({columns}, at::kFloat, 3);
  const at::Tensor wanted = defined_product(x_RK, w_CK.t().contiguous());
  const at::Tensor rounded_bias_C = bias_C.to(at::kBFloat16).to(at::kFloat);
  EXPECT_TRUE(same_bits(linear_forward(x_RK, w_CK), wanted.to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(linear_forward(x_RK, w_CK, bias_C), (wanted + rounded_bias_C).to(at::kBFloat16)));
  EXPECT_TRUE(same_bits(linear_backward_input(x_RK, w_CK.t().contiguous()), wanted.to(at::kBFloat16)));
}

class LinearOnTiles : public testing::Test {
 protected:
  void SetUp() override {
    if (!cpu::amx::available()) GTEST_SKIP() << "no AMX tiles on this processor";
  }
};

TEST_F(LinearOnTiles, BitsAreThoseOfTheDefinitionForAnyNumberOfRows) {
  for (int64_t rows = 1; rows <= 66; ++rows) expect_defined_bits(rows, 96, 64);
}

TEST_F(LinearOnTiles, BitsDoNotShowSlabsOrPackings) {
  for (const auto& [rows, inner, columns] : {std::tuple{45, 384, 96}, {45, 416, 96}, {45, 576, 192}, {33, 1536, 64},
                                             {7, 3264, 32}, {1057, 64, 32}, {1100, 640, 64}}) {
    expect_defined_bits(rows, inner, columns);
  }
}

TEST_F(LinearOnTiles, ARowsBitsAreItsOwn) {
  const at::Tensor x_RK = random({83, 640}, at::kBFloat16, 1), w_CK = random({64, 640}, at::kBFloat16, 2);
  const at::Tensor y_RC = linear_forward(x_RK, w_CK);
  for (const int64_t row : {0, 31, 32, 64, 82}) {
    EXPECT_TRUE(same_bits(linear_forward(x_RK.narrow(0, row, 1), w_CK), y_RC.narrow(0, row, 1))) << "row " << row;
  }
}

TEST_F(LinearOnTiles, NoRowsGiveNoResults) {
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
