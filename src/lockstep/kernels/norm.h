#pragma once

#include <ATen/core/Tensor.h>

/// RMSNorm (Zhang and Sennrich, 2019): y = x * rstd * w, rstd = 1 / sqrt(mean(x^2) + eps), statistics in float32
/// (float64 for float64 input). Letters: R rows, N normalised width. w_N is float32 (float64).
namespace lockstep::kernels {

struct RmsNormResult {
  at::Tensor y_RN;     ///< in `out_dtype`
  at::Tensor rstd_R;   ///< float32 (float64)
};
RmsNormResult rms_norm_forward(const at::Tensor& x_RN, const at::Tensor& w_N, double eps, at::ScalarType out_dtype);

/// The residual stream's step, in one pass: x_RN += delta_RN (any dtype), then the norm of the new x.
RmsNormResult add_rms_norm_forward(at::Tensor& x_RN, const at::Tensor& delta_RN, const at::Tensor& w_N, double eps,
                                   at::ScalarType out_dtype);

/// Recomputes y from x and rstd (what checkpointing and low-memory backward use); same bits as the forward's y.
at::Tensor rms_norm_apply(const at::Tensor& x_RN, const at::Tensor& rstd_R, const at::Tensor& w_N,
                          at::ScalarType out_dtype);

/// dx is ADDED to `dx_RN` (the gradient that already flows in the residual stream; pass zeros for a plain norm);
/// returns dw_N in float32 (float64), summed over rows in fixed order.
at::Tensor rms_norm_backward(const at::Tensor& dy_RN, const at::Tensor& x_RN, const at::Tensor& rstd_R,
                             const at::Tensor& w_N, at::Tensor& dx_RN);

}  // namespace lockstep::kernels
