#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::kernels {

/// accumulator += x, accumulator float32 (float64), x any floating dtype; same shape, contiguous.
void add_into(at::Tensor& accumulator, const at::Tensor& x);
/// A copy in another dtype (to nearest even; float64 to bfloat16 by way of float32), same bits on every path.
at::Tensor convert(const at::Tensor& x, at::ScalarType dtype);
/// x = cap * tanh(x / cap), in place (gemma's logits), and its backward pass: dy *= 1 - (y / cap)^2 from the capped y.
void softcap(at::Tensor& x, double cap);
void softcap_backward(at::Tensor& dy, const at::Tensor& y, double cap);
/// Rows `rows` (int64) of x, and the reverse: out[rows[i]] = x[i] (out zeroed first by the caller).
at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& rows);
void scatter_rows(at::Tensor& out, const at::Tensor& rows, const at::Tensor& x);

}  // namespace lockstep::kernels
