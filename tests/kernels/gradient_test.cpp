// Every backward kernel in float64 against central differences of its forward.
#include "kernels/support.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/kernels/norm.h"

#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <functional>

namespace lockstep::kernels::test {
namespace {

/// With values of size one, a step of 1e-5 leaves an error of about step^2 + 1e-16 * terms / step.
constexpr double kStep = 1e-5;
constexpr double kTolerance = 2e-8;

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
  EXPECT_LT(max_difference(linear_backward_input(dy, w), numeric_gradient(x, loss)), kTolerance);
  EXPECT_LT(max_difference(linear_backward_weight(dy, x), numeric_gradient(w, loss)), kTolerance);
  EXPECT_LT(max_difference(linear_backward_bias(dy), numeric_gradient(b, loss)), kTolerance);
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
  EXPECT_LT(max_difference(dx - flowing, numeric_gradient(x, loss)), kTolerance);
  EXPECT_LT(max_difference(dw, numeric_gradient(w, loss)), kTolerance);
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
  EXPECT_LT(max_difference(dx, numeric_gradient(x, loss)), kTolerance);
}

TEST(Gradient, Swiglu) {
  at::Tensor gate = random({4, 13}, at::kDouble, 1) * 4;
  at::Tensor up = random({4, 13}, at::kDouble, 2);
  const at::Tensor dh = random({4, 13}, at::kDouble, 3);
  const auto loss = [&] { return dot(swiglu_forward(gate, up), dh); };
  const auto grads = swiglu_backward(dh, gate, up);
  EXPECT_LT(max_difference(grads.dgate_TM, numeric_gradient(gate, loss)), kTolerance);
  EXPECT_LT(max_difference(grads.dup_TM, numeric_gradient(up, loss)), kTolerance);
}

TEST(Gradient, CrossEntropy) {
  at::Tensor logits = random({3, 29}, at::kDouble, 1) * 3;
  const at::Tensor targets = ints({28, 0, 11});
  const double grad_scale = 0.25;
  const auto loss = [&] { return cross_entropy(logits, targets, 1, false).nll_C.sum().item<double>() * grad_scale; };
  const at::Tensor numeric = numeric_gradient(logits, loss);
  at::Tensor gradient = logits.clone();
  cross_entropy(gradient, targets, grad_scale, true);
  EXPECT_LT(max_difference(gradient, numeric), kTolerance);
}

/// Gradients of q, k and v of one grain against central differences.
void check_attention(std::vector<int64_t> starts, int64_t heads, int64_t kv_heads, int64_t width, double dropout) {
  const int64_t tokens = starts.back();
  at::Tensor q = random({tokens, heads, width}, at::kDouble, 1) * 2;
  at::Tensor k = random({tokens, kv_heads, width}, at::kDouble, 2) * 2;
  at::Tensor v = random({tokens, kv_heads, width}, at::kDouble, 3);
  const at::Tensor d_o = random({tokens, heads, width}, at::kDouble, 4);
  std::vector<uint64_t> ordinals;
  for (size_t d = 0; d + 1 < starts.size(); ++d) ordinals.push_back(100 * d + 3);
  const AttentionConfig config{0.6, {dropout, 77, 2, ordinals}};
  const auto loss = [&] { return dot(attention_forward(q, k, v, starts, config).o_TND, d_o); };
  const auto saved = attention_forward(q, k, v, starts, config);
  const auto grads = attention_backward(d_o, q, k, v, saved, starts, config);
  EXPECT_LT(max_difference(grads.dq_TND, numeric_gradient(q, loss)), kTolerance);
  EXPECT_LT(max_difference(grads.dk_TKD, numeric_gradient(k, loss)), kTolerance);
  EXPECT_LT(max_difference(grads.dv_TKD, numeric_gradient(v, loss)), kTolerance);
}

TEST(Gradient, AttentionOfOneDocument) { check_attention({0, 9}, 2, 2, 4, 0); }
TEST(Gradient, AttentionWithGroupedHeadsAndSeveralDocuments) { check_attention({0, 1, 6, 40}, 6, 2, 3, 0); }
TEST(Gradient, AttentionWithDropout) { check_attention({0, 5, 17}, 4, 2, 3, 0.3); }

TEST(Gradient, AttentionOverSeveralBlocksOfQueries) {
  // A long document: a few elements on both sides of the blocks' borders instead of all.
  const std::vector<int64_t> starts{0, 400};
  at::Tensor q = random({400, 2, 4}, at::kDouble, 1);
  at::Tensor k = random({400, 1, 4}, at::kDouble, 2);
  at::Tensor v = random({400, 1, 4}, at::kDouble, 3);
  const at::Tensor d_o = random({400, 2, 4}, at::kDouble, 4);
  const AttentionConfig config{0.5, {}};
  const auto saved = attention_forward(q, k, v, starts, config);
  const auto grads = attention_backward(d_o, q, k, v, saved, starts, config);
  const auto loss = [&] { return dot(attention_forward(q, k, v, starts, config).o_TND, d_o); };
  for (const int64_t t : {0, 128, 255, 256, 257, 399}) {
    for (const auto& [x, dx] : {std::pair{&q, grads.dq_TND}, {&k, grads.dk_TKD}, {&v, grads.dv_TKD}}) {
      at::Tensor row = x->select(0, t).select(0, 0);
      EXPECT_LT(max_difference(dx.select(0, t).select(0, 0), numeric_gradient(row, loss)), kTolerance) << "token " << t;
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::test
