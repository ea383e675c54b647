#include "lockstep/model/norms.h"

#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/norm.h"
#include "lockstep/model/products.h"

#include <ATen/ops/add.h>

namespace lockstep::model {
namespace {

at::Tensor rms_weight(const tensor::ParamStore& params, const Norm& norm) {
  const at::Tensor& w_N = params.weight(norm.weight);
  return norm.kind == NormKind::RmsPlusOne ? at::add(w_N, 1) : w_N;
}

Normed normed(kernels::RmsNormResult result) { return {std::move(result.y_RN), {std::move(result.rstd_R), {}}}; }
Normed normed(kernels::LayerNormResult result) {
  return {std::move(result.y_RN), {std::move(result.moments.rstd_R), std::move(result.moments.mean_R)}};
}

}  // namespace

Normed norm_forward(const tensor::ParamStore& params, const Norm& norm, const at::Tensor& x_RN, at::ScalarType dtype) {
  if (norm.kind == NormKind::LayerNorm)
    return normed(kernels::layer_norm_forward(x_RN, params.weight(norm.weight), params.weight(norm.bias), norm.eps, dtype));
  return normed(kernels::rms_norm_forward(x_RN, rms_weight(params, norm), norm.eps, dtype));
}

Normed add_norm_forward(const tensor::ParamStore& params, const Norm& norm, at::Tensor& x_RN, const at::Tensor& delta_RN,
                        at::ScalarType dtype) {
  if (norm.kind == NormKind::LayerNorm)
    return normed(kernels::add_layer_norm_forward(x_RN, delta_RN, params.weight(norm.weight), params.weight(norm.bias),
                                                  norm.eps, dtype));
  return normed(kernels::add_rms_norm_forward(x_RN, delta_RN, rms_weight(params, norm), norm.eps, dtype));
}

at::Tensor norm_apply(const tensor::ParamStore& params, const Norm& norm, const at::Tensor& x_RN, const NormState& state,
                      at::ScalarType dtype) {
  if (norm.kind == NormKind::LayerNorm)
    return kernels::layer_norm_apply(x_RN, {state.mean_R, state.rstd_R}, params.weight(norm.weight), params.weight(norm.bias),
                                     dtype);
  return kernels::rms_norm_apply(x_RN, state.rstd_R, rms_weight(params, norm), dtype);
}

void norm_backward(const tensor::ParamStore& params, const Norm& norm, at::Tensor dy_RN, const at::Tensor& x_RN,
                   const NormState& state, at::Tensor& dx_RN, tensor::GradSink& sink) {
  if (norm.kind != NormKind::LayerNorm) {
    sink.add(norm.weight, kernels::rms_norm_backward(dy_RN, x_RN, state.rstd_R, rms_weight(params, norm), dx_RN));
    return;
  }
  dy_RN = in_dtype(dy_RN, x_RN.scalar_type());
  const auto grads = kernels::layer_norm_backward(dy_RN, x_RN, {state.mean_R, state.rstd_R}, params.weight(norm.weight));
  sink.add(norm.weight, grads.dw_N);
  sink.add(norm.bias, grads.db_N);
  kernels::add_into(dx_RN, dy_RN);
}

}  // namespace lockstep::model
