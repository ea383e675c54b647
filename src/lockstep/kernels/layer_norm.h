#pragma once

#include <ATen/core/Tensor.h>

/// LayerNorm (Ba, Kiros and Hinton, 2016): y = (x - mean) * rstd * w + b, rstd = 1 / sqrt(variance + eps), the variance
/// with divisor N. Letters: R rows, N normalised width. x_RN, w_N, b_N, the moments and all gradients are float32, or
/// all float64; y_RN is in `y_dtype`.
namespace lockstep::kernels {

struct LayerNormMoments {
  at::Tensor mean_R, rstd_R;
};
struct LayerNormResult {
  at::Tensor y_RN;
  LayerNormMoments moments;
};
LayerNormResult layer_norm_forward(const at::Tensor& x_RN, const at::Tensor& w_N, const at::Tensor& b_N, double eps,
                                   at::ScalarType y_dtype);

/// The residual stream's step, in one pass: x_RN += delta_RN (any dtype), then the norm of the new x.
LayerNormResult add_layer_norm_forward(at::Tensor& x_RN, const at::Tensor& delta_RN, const at::Tensor& w_N,
                                       const at::Tensor& b_N, double eps, at::ScalarType y_dtype);

/// y again from x and its moments; the same bits as the forward's y.
at::Tensor layer_norm_apply(const at::Tensor& x_RN, const LayerNormMoments& moments, const at::Tensor& w_N,
                            const at::Tensor& b_N, at::ScalarType y_dtype);

struct LayerNormGrads {
  at::Tensor dw_N, db_N;   ///< summed over rows in fixed order
};
/// dy_RN becomes the gradient of x, in place (a post-norm model has no other path around the norm).
LayerNormGrads layer_norm_backward(at::Tensor& dy_RN, const at::Tensor& x_RN, const LayerNormMoments& moments,
                                   const at::Tensor& w_N);

}  // namespace lockstep::kernels
