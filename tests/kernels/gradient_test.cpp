// Every backward kernel in float64 against central differences of its forward.
#include "kernels/support.h"
#include "lockstep/kernels/activation.h"
#include "lockstep/kernels/binary_cross_entropy.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/kernels/norm.h"

#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <functional>

namespace lockstep::kernels::test {
namespace {

/// With values of size one, a step of 1e-5 leaves an error of about step^2 + 1e-16 * terms / step.
constexpr double kStep = 1e-5;
constexpr double kNumericTolerance = 2e-8;

double dot(const at::Tensor& a, const at::Tensor& b) { return (a * b).sum().item<double>(); }

/// d loss / d x element by element; x is restored.
at::Tensor numeric_gradient(at::Tensor& x, const std::function<double()>& loss) {
  at::Tensor gradient = at::zeros_like(x);
  double* value = x.mutable_data_ptr<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double saved = value[i];
    value[i] = saved + kStep;
    const double above = loss();
    value[i] = saved - kStep;
    const double below = loss();
    value[i] = saved;
    gradient.mutable_data_ptr<double>()[i] = (above - below) / (2 * kStep);
  }
  return gradient;
}

TEST(Gradient, Linear) {
  at::Tensor x = random({5, 7}, at::kDouble, 1);
  at::Tensor w = random({3, 7}, at::kDouble, 2);
  at::Tensor b = random({3}, at::kDouble, 3);
  const at::Tensor dy = random({5, 3}, at::kDouble, 4);
  const auto loss = [&] { return dot(linear_forward(x, w, b), dy); };
  EXPECT_LT(max_difference(linear_backward_input(dy, w), numeric_gradient(x, loss)), kNumericTolerance);
  EXPECT_LT(max_difference(linear_backward_weight(dy, x), numeric_gradient(w, loss)), kNumericTolerance);
  EXPECT_LT(max_difference(linear_backward_bias(dy), numeric_gradient(b, loss)), kNumericTolerance);
}

TEST(Gradient, RmsNormAddsIntoTheResidualGradient) {
  at::Tensor x = random({20, 11}, at::kDouble, 1);
  at::Tensor w = random({11}, at::kDouble, 2);
  const at::Tensor dy = random({20, 11}, at::kDouble, 3);
  const auto loss = [&] { return dot(rms_norm_forward(x, w, 1e-2, at::kDouble).y_RN, dy); };
  const at::Tensor rstd = rms_norm_forward(x, w, 1e-2, at::kDouble).rstd_R;
  const at::Tensor flowing = random({20, 11}, at::kDouble, 4);
  at::Tensor dx = flowing.clone();
  const at::Tensor dw = rms_norm_backward(dy, x, rstd, w, dx);
  EXPECT_LT(max_difference(dx - flowing, numeric_gradient(x, loss)), kNumericTolerance);
  EXPECT_LT(max_difference(dw, numeric_gradient(w, loss)), kNumericTolerance);
}

TEST(Gradient, LayerNorm) {
  at::Tensor x = random({20, 11}, at::kDouble, 1);
  at::Tensor w = random({11}, at::kDouble, 2);
  at::Tensor b = random({11}, at::kDouble, 3);
  const at::Tensor dy = random({20, 11}, at::kDouble, 4);
  const auto loss = [&] { return dot(layer_norm_forward(x, w, b, 1e-2, at::kDouble).y_RN, dy); };
  at::Tensor dx = dy.clone();
  const auto grads = layer_norm_backward(dx, x, layer_norm_forward(x, w, b, 1e-2, at::kDouble).moments, w);
  EXPECT_LT(max_difference(dx, numeric_gradient(x, loss)), kNumericTolerance);
  EXPECT_LT(max_difference(grads.dw_N, numeric_gradient(w, loss)), kNumericTolerance);
  EXPECT_LT(max_difference(grads.db_N, numeric_gradient(b, loss)), kNumericTolerance);
}

TEST(Gradient, Activations) {
  for (const Activation activation : {Activation::Gelu, Activation::GeluTanh, Activation::Relu, Activation::Tanh}) {
    at::Tensor x = random({4, 13}, at::kDouble, 1) * 4;
    const at::Tensor dy = random({4, 13}, at::kDouble, 2);
    const auto loss = [&] { return dot(activation_forward(activation, x), dy); };
    EXPECT_LT(max_difference(activation_backward(activation, dy, x), numeric_gradient(x, loss)), kNumericTolerance)
        << static_cast<int>(activation);
  }
}

TEST(Gradient, DropoutIsItsOwnBackward) {
  const std::vector<int64_t> starts{0, 3, 7};
  const std::vector<uint64_t> ordinals{5, 2};
  const Dropout config{0.4, 9, 1, 2};
  at::Tensor x = random({7, 5}, at::kDouble, 1);
  const at::Tensor dy = random({7, 5}, at::kDouble, 2);
  const auto loss = [&] { return dot(dropout(x, at::kDouble, starts, ordinals, config), dy); };
  EXPECT_LT(max_difference(dropout(dy, at::kDouble, starts, ordinals, config), numeric_gradient(x, loss)),
            kNumericTolerance);
}

TEST(Gradient, BinaryCrossEntropy) {
  at::Tensor logits = random({3, 7}, at::kDouble, 1) * 5;
  const at::Tensor labels = random({3, 7}, at::kDouble, 2).abs();
  const auto loss = [&] { return binary_cross_entropy(logits, labels, 1).loss_DC.sum().item<double>() * 0.25; };
  EXPECT_LT(max_difference(binary_cross_entropy(logits, labels, 0.25).grad_DC, numeric_gradient(logits, loss)),
            kNumericTolerance);
}

TEST(Gradient, Rope) {
  at::Tensor x = random({3, 2, 10}, at::kDouble, 1);
  at::Tensor dx = random({3, 2, 10}, at::kDouble, 2);
  const at::Tensor dy = dx.clone();
  const at::Tensor positions = ints({4, 0, 19});
  const RopeTable table = small_rope_table(10, 20, at::kDouble);
  const auto loss = [&] {
    at::Tensor turned = x.clone();
    rope_forward(turned, positions, table);
    return dot(turned, dy);
  };
  rope_backward(dx, positions, table);
  EXPECT_LT(max_difference(dx, numeric_gradient(x, loss)), kNumericTolerance);
}

TEST(Gradient, Swiglu) {
  at::Tensor gate = random({4, 13}, at::kDouble, 1) * 4;
  at::Tensor up = random({4, 13}, at::kDouble, 2);
  const at::Tensor dh = random({4, 13}, at::kDouble, 3);
  const auto loss = [&] { return dot(swiglu_forward(gate, up), dh); };
  const auto grads = swiglu_backward(dh, gate, up);
  EXPECT_LT(max_difference(grads.dgate_TM, numeric_gradient(gate, loss)), kNumericTolerance);
  EXPECT_LT(max_difference(grads.dup_TM, numeric_gradient(up, loss)), kNumericTolerance);
}

TEST(Gradient, CrossEntropy) {
  at::Tensor logits = random({3, 29}, at::kDouble, 1) * 3;
  const at::Tensor targets = ints({28, 0, 11});
  const double grad_scale = 0.25;
  const auto loss = [&] { return cross_entropy(logits, targets, 1, false).nll_C.sum().item<double>() * grad_scale; };
  const at::Tensor numeric = numeric_gradient(logits, loss);
  at::Tensor gradient = logits.clone();
  cross_entropy(gradient, targets, grad_scale, true);
  EXPECT_LT(max_difference(gradient, numeric), kNumericTolerance);
}

/// Gradients of q, k and v of one grain against central differences.
void check_attention(std::vector<int64_t> starts, int64_t heads, int64_t kv_heads, int64_t width, double dropout,
                     bool causal = true) {
  const int64_t tokens = starts.back();
  at::Tensor q = random({tokens, heads, width}, at::kDouble, 1) * 2;
  at::Tensor k = random({tokens, kv_heads, width}, at::kDouble, 2) * 2;
  at::Tensor v = random({tokens, kv_heads, width}, at::kDouble, 3);
  const at::Tensor d_o = random({tokens, heads, width}, at::kDouble, 4);
  std::vector<uint64_t> ordinals;
  for (size_t d = 0; d + 1 < starts.size(); ++d) ordinals.push_back(100 * d + 3);
  const AttentionConfig config{0.6, {dropout, 77, 2, ordinals}, causal};
  const auto loss = [&] { return dot(attention_forward(q, k, v, starts, config).o_TND, d_o); };
  const auto saved = attention_forward(q, k, v, starts, config);
  const auto grads = attention_backward(d_o, q, k, v, saved, starts, config);
  EXPECT_LT(max_difference(grads.dq_TND, numeric_gradient(q, loss)), kNumericTolerance);
  EXPECT_LT(max_difference(grads.dk_TKD, numeric_gradient(k, loss)), kNumericTolerance);
  EXPECT_LT(max_difference(grads.dv_TKD, numeric_gradient(v, loss)), kNumericTolerance);
}

TEST(Gradient, AttentionOfOneDocument) { check_attention({0, 9}, 2, 2, 4, 0); }
TEST(Gradient, AttentionWithGroupedHeadsAndSeveralDocuments) { check_attention({0, 1, 6, 40}, 6, 2, 3, 0); }
TEST(Gradient, AttentionWithDropout) { check_attention({0, 5, 17}, 4, 2, 3, 0.3); }

TEST(Gradient, AttentionOverWholeDocuments) { check_attention({0, 1, 6, 40}, 4, 4, 3, 0, false); }
TEST(Gradient, AttentionOverWholeDocumentsWithDropout) { check_attention({0, 5, 17}, 4, 2, 3, 0.3, false); }

class GradientOfBlocks : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Causal, GradientOfBlocks, testing::Bool());

TEST_P(GradientOfBlocks, AttentionOverSeveralBlocksOfQueries) {
  // A long document: a few elements on both sides of the blocks' borders instead of all.
  const std::vector<int64_t> starts{0, 400};
  at::Tensor q = random({400, 2, 4}, at::kDouble, 1);
  at::Tensor k = random({400, 1, 4}, at::kDouble, 2);
  at::Tensor v = random({400, 1, 4}, at::kDouble, 3);
  const at::Tensor d_o = random({400, 2, 4}, at::kDouble, 4);
  const AttentionConfig config{0.5, {}, GetParam()};
  const auto saved = attention_forward(q, k, v, starts, config);
  const auto grads = attention_backward(d_o, q, k, v, saved, starts, config);
  const auto loss = [&] { return dot(attention_forward(q, k, v, starts, config).o_TND, d_o); };
  for (const int64_t t : {0, 128, 255, 256, 257, 399}) {
    for (const auto& [x, dx] : {std::pair{&q, grads.dq_TND}, {&k, grads.dk_TKD}, {&v, grads.dv_TKD}}) {
      at::Tensor row = x->select(0, t).select(0, 0);
      EXPECT_LT(max_difference(dx.select(0, t).select(0, 0), numeric_gradient(row, loss)), kNumericTolerance) << "token " << t;
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
