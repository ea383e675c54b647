#pragma once

#include "lockstep/base/profile.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/model/decoding.h"
#include "lockstep/tensor/grad_sink.h"
#include "lockstep/tensor/param_store.h"

/// Products with parameters, as blocks and heads use them.
namespace lockstep::model {

/// The parameters of y = x w^T + b; bias -1: none. `transposed`: w is stored [in, out], and y = x w + b.
struct Linear {
  tensor::ParamId weight = -1, bias = -1;
  bool transposed = false;
};

inline at::Tensor project(const tensor::ParamStore& params, const Linear& linear, const at::Tensor& x_TI) {
  const at::Tensor& w = params.weight(linear.weight);
  const at::Tensor bias = linear.bias < 0 ? at::Tensor{} : params.weight(linear.bias);
  if (ThreadTeam* team = TokenByToken::team()) return kernels::row_product(x_TI, w, bias, linear.transposed, *team);
  if (!linear.transposed) return kernels::linear_forward(x_TI, w, bias);
  at::Tensor y_TO = kernels::linear_backward_input(x_TI, w);
  if (bias.defined()) y_TO.add_(bias.to(y_TO.scalar_type()));
  return y_TO;
}

/// The gradient with respect to x.
inline at::Tensor input_gradient(const tensor::ParamStore& params, const Linear& linear, const at::Tensor& dy_TO) {
  const at::Tensor& w = params.weight(linear.weight);
  return linear.transposed ? kernels::linear_forward(dy_TO, w) : kernels::linear_backward_input(dy_TO, w);
}

/// dy_TO^T x_TI is a contribution to the matrix `weight`.
inline void add_weight_gradient(tensor::ParamId weight, const at::Tensor& dy_TO, const at::Tensor& x_TI,
                                tensor::GradSink& sink) {
  const profile::Scope span(profile::Kind::ProductWeightGradient, [&] { return 2 * dy_TO.numel() * x_TI.size(1); });
  if (!sink.add_product(weight, dy_TO, x_TI)) sink.add(weight, kernels::linear_backward_weight(dy_TO, x_TI));
}

/// The gradients with respect to w and b go to the sink.
inline void project_backward(const Linear& linear, const at::Tensor& dy_TO, const at::Tensor& x_TI,
                             tensor::GradSink& sink) {
  if (linear.transposed) {
    add_weight_gradient(linear.weight, x_TI, dy_TO, sink);
  } else {
    add_weight_gradient(linear.weight, dy_TO, x_TI, sink);
  }
  if (linear.bias >= 0) sink.add(linear.bias, kernels::linear_backward_bias(dy_TO));
}

/// Token and head dimensions as one: what norms over heads and products see.
inline at::Tensor rows_of_width(const at::Tensor& x, int64_t width) { return x.view({x.numel() / width, width}); }

/// A copy in `dtype`, or x itself if it has it.
inline at::Tensor in_dtype(const at::Tensor& x, at::ScalarType dtype) {
  return x.scalar_type() == dtype ? x : kernels::convert(x, dtype);
}

}  // namespace lockstep::model
