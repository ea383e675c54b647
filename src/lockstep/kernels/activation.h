#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

/// Elementwise functions with derivatives, in the dtype of x (bfloat16, float32, float64); inner arithmetic in float32
/// (float64). The backward pass makes everything again from x.
namespace lockstep::kernels {

enum class Activation : uint8_t {
  Gelu,      ///< x Phi(x) (Hendrycks and Gimpel, 2016); Hugging Face's "gelu"
  GeluTanh,  ///< its tanh approximation; "gelu_new", "gelu_pytorch_tanh"
  Relu,
  Tanh,
};

at::Tensor activation_forward(Activation activation, const at::Tensor& x);
/// dy * derivative at x. `y`, if given, becomes what activation_forward returns, at the price of writing it.
at::Tensor activation_backward(Activation activation, const at::Tensor& dy, const at::Tensor& x, at::Tensor* y = nullptr);

}  // namespace lockstep::kernels
