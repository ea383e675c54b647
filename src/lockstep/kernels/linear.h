#pragma once

#include <ATen/core/Tensor.h>

/// Products over the packed tokens of one grain. Letters: T tokens, I inputs, O outputs. All operands have one dtype
/// (bfloat16, float32, float64). A cell always calls the same product with the same layouts, one thread: oneDNN's TN
/// and NT products differ in their last bits.
namespace lockstep::kernels {

/// y_TO = x_TI w_OI^T (+ b_O, float32 or the dtype of x).
at::Tensor linear_forward(const at::Tensor& x_TI, const at::Tensor& w_OI, const at::Tensor& b_O = {});
/// dx_TI = dy_TO w_OI.
at::Tensor linear_backward_input(const at::Tensor& dy_TO, const at::Tensor& w_OI);
/// dw_OI = dy_TO^T x_TI. In bfloat16 rounded once per call, as under autocast.
at::Tensor linear_backward_weight(const at::Tensor& dy_TO, const at::Tensor& x_TI);
/// db_O in float32 (float64 for float64): sum over tokens in fixed order.
at::Tensor linear_backward_bias(const at::Tensor& dy_TO);

}  // namespace lockstep::kernels
