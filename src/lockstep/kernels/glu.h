#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

/// A gated MLP's elementwise part: h = act(gate) * up, inner arithmetic in float32 (float64 for float64); act is
/// silu(z) = z / (1 + exp(-z)) (SwiGLU) or the tanh approximation of GELU (GeGLU; Shazeer, GLU variants, 2020).
/// T tokens, M the MLP's width.
namespace lockstep::kernels {

enum class Gate : uint8_t { Silu, GeluTanh };

at::Tensor swiglu_forward(const at::Tensor& gate_TM, const at::Tensor& up_TM, Gate gate = Gate::Silu);

struct SwigluGrads {
  at::Tensor dgate_TM, dup_TM;
};
/// `h_TM`, if given, becomes what swiglu_forward returns, at the price of writing it: act(gate) is there already.
SwigluGrads swiglu_backward(const at::Tensor& dh_TM, const at::Tensor& gate_TM, const at::Tensor& up_TM,
                            Gate gate = Gate::Silu, at::Tensor* h_TM = nullptr);

}  // namespace lockstep::kernels
