// bfloat16 and float32 against the float64 kernel on the same (rounded) operands. Bounds are relative L2 errors.
// u is half the spacing of the dtype at 1: what one rounding costs. A product of n terms summed in float32 adds about
// sqrt(n) * 2^-24; results in bfloat16 add one u for their own rounding.
#include "kernels/support.h"
#include "lockstep/kernels/activation.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::kernels::test {
namespace {

class Precision : public testing::TestWithParam<at::ScalarType> {
 protected:
  at::ScalarType dtype() const { return GetParam(); }
  double u() const { return epsilon(dtype()) / 2; }
  /// Sum of n terms in float32, then one rounding to the dtype.
  double sum_bound(int64_t n) const { return u() + std::sqrt(static_cast<double>(n)) * 0x1p-24 * 2; }
  at::Tensor operand(at::IntArrayRef shape, uint64_t ordinal) const { return random(shape, dtype(), ordinal); }
};

at::Tensor wide(const at::Tensor& x) { return x.to(at::kDouble); }

TEST_P(Precision, Linear) {
  for (const auto& [tokens, inputs, outputs] : {std::tuple{37, 64, 96}, {215, 576, 192}, {64, 1536, 576}}) {
    const at::Tensor x = operand({tokens, inputs}, 1);
    const at::Tensor w = operand({outputs, inputs}, 2);
    const at::Tensor dy = operand({tokens, outputs}, 3);
    EXPECT_LT(relative_l2(linear_forward(x, w), linear_forward(wide(x), wide(w))), sum_bound(inputs));
    EXPECT_LT(relative_l2(linear_backward_input(dy, w), linear_backward_input(wide(dy), wide(w))), sum_bound(outputs));
    EXPECT_LT(relative_l2(linear_backward_weight(dy, x), linear_backward_weight(wide(dy), wide(x))), sum_bound(tokens));
    EXPECT_LT(relative_l2(linear_backward_bias(dy), linear_backward_bias(wide(dy))),
              std::sqrt(static_cast<double>(tokens)) * 0x1p-24);
  }
}

TEST_P(Precision, RmsNorm) {
  const at::Tensor x = random({215, 576}, at::kFloat, 1);
  const at::Tensor w = random({576}, at::kFloat, 2);
  const at::Tensor dy = operand({215, 576}, 3);
  const auto got = rms_norm_forward(x, w, 1e-5, dtype());
  const auto wanted = rms_norm_forward(wide(x), wide(w), 1e-5, at::kDouble);
  EXPECT_LT(relative_l2(got.y_RN, wanted.y_RN), u() + 6 * 0x1p-24);
  at::Tensor dx = random({215, 576}, at::kFloat, 4);
  at::Tensor dx_wide = wide(dx);
  const at::Tensor dw = rms_norm_backward(dy, x, got.rstd_R, w, dx);
  const at::Tensor dw_wide = rms_norm_backward(wide(dy), wide(x), wanted.rstd_R, wide(w), dx_wide);
  EXPECT_LT(relative_l2(dx, dx_wide), 16 * 0x1p-24);  // float32 throughout: a dozen roundings per element
  EXPECT_LT(relative_l2(dw, dw_wide), std::sqrt(215.0) * 0x1p-24);
}

TEST_P(Precision, LayerNorm) {
  // A mean of one half beside values of size one: the difference loses at most a bit.
  const at::Tensor x = random({215, 384}, at::kFloat, 1) + 0.5;
  const at::Tensor w = random({384}, at::kFloat, 2), b = random({384}, at::kFloat, 3);
  const auto got = layer_norm_forward(x, w, b, 1e-12, dtype());
  const auto wanted = layer_norm_forward(wide(x), wide(w), wide(b), 1e-12, at::kDouble);
  EXPECT_LT(relative_l2(got.y_RN, wanted.y_RN), u() + 8 * 0x1p-24);
  at::Tensor dx = random({215, 384}, at::kFloat, 4);
  at::Tensor dx_wide = wide(dx);
  const auto grads = layer_norm_backward(dx, x, got.moments, w);
  const auto grads_wide = layer_norm_backward(dx_wide, wide(x), wanted.moments, wide(w));
  EXPECT_LT(relative_l2(dx, dx_wide), 16 * 0x1p-24);
  EXPECT_LT(relative_l2(grads.dw_N, grads_wide.dw_N), std::sqrt(215.0) * 0x1p-24);
  EXPECT_LT(relative_l2(grads.db_N, grads_wide.db_N), std::sqrt(215.0) * 0x1p-24);
}

TEST_P(Precision, Activations) {
  for (const Activation activation : {Activation::Gelu, Activation::GeluTanh, Activation::Relu, Activation::Tanh}) {
    const at::Tensor x = (operand({215, 96}, 1) * 4).to(dtype()), dy = operand({215, 96}, 2);
    EXPECT_LT(relative_l2(activation_forward(activation, x), activation_forward(activation, wide(x))), u() + 8 * 0x1p-24);
    EXPECT_LT(relative_l2(activation_backward(activation, dy, x), activation_backward(activation, wide(dy), wide(x))),
              u() + 16 * 0x1p-24);
  }
}

TEST_P(Precision, RopeAndSwiglu) {
  at::Tensor x = operand({50, 9, 64}, 1);
  at::Tensor x_wide = wide(x);
  std::vector<int32_t> positions;
  for (int32_t t = 0; t < 50; ++t) positions.push_back(t);
  const RopeTable table = small_rope_table(64, 50, dtype());
  rope_forward(x, ints(positions), table);
  rope_forward(x_wide, ints(positions), {wide(table.cos_PD2), wide(table.sin_PD2)});
  EXPECT_LT(relative_l2(x, x_wide), u() + 2 * 0x1p-24);

  const at::Tensor gate = operand({50, 1536}, 2) * 8;
  const at::Tensor up = operand({50, 1536}, 3);
  const at::Tensor dh = operand({50, 1536}, 4);
  EXPECT_LT(relative_l2(swiglu_forward(gate, up), swiglu_forward(wide(gate), wide(up))), u() + 5 * 0x1p-24);
  const auto got = swiglu_backward(dh, gate, up);
  const auto wanted = swiglu_backward(wide(dh), wide(gate), wide(up));
  EXPECT_LT(relative_l2(got.dgate_TM, wanted.dgate_TM), u() + 8 * 0x1p-24);
  EXPECT_LT(relative_l2(got.dup_TM, wanted.dup_TM), u() + 5 * 0x1p-24);
}

TEST_P(Precision, CrossEntropy) {
  at::Tensor logits = operand({8, 49152}, 1) * 10;
  at::Tensor logits_wide = wide(logits);
  const at::Tensor targets = ints({1, 20, 300, 4000, 40000, 49151, 0, 77});
  const auto got = cross_entropy(logits, targets, 1.0 / 64, true);
  const auto wanted = cross_entropy(logits_wide, targets, 1.0 / 64, true);
  // A loss of about 17 and its terms of up to 20 are rounded a few times in float32.
  EXPECT_LT(max_difference(got.nll_C, wanted.nll_C), 40 * 0x1p-24 * 4);
  EXPECT_LT(max_difference(got.entropy_C, wanted.entropy_C), 40 * 0x1p-24 * 4);
  // exp multiplies the rounding of its argument (up to 20) into the relative error.
  EXPECT_LT(relative_l2(logits, logits_wide), u() + 20 * 0x1p-24);
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Precision, testing::Values(at::kBFloat16, at::kFloat),
                         [](const auto& test) { return std::string(c10::toString(test.param)); });

}  // namespace
}  // namespace lockstep::kernels::test
