#pragma once

#include <ATen/core/Tensor.h>

/// SwiGLU's elementwise part: h = silu(gate) * up, silu(z) = z / (1 + exp(-z)), inner arithmetic in float32
/// (float64 for float64). T tokens, M the MLP's width.
namespace lockstep::kernels {

at::Tensor swiglu_forward(const at::Tensor& gate_TM, const at::Tensor& up_TM);

struct SwigluGrads {
  at::Tensor dgate_TM, dup_TM;
};
SwigluGrads swiglu_backward(const at::Tensor& dh_TM, const at::Tensor& gate_TM, const at::Tensor& up_TM);

}  // namespace lockstep::kernels
