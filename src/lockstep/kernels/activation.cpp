#include "lockstep/kernels/activation.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/split.h"

#include <ATen/ops/empty.h>

namespace lockstep::kernels {
namespace {

cpu::Function function_of(Activation activation) {
  switch (activation) {
    case Activation::Gelu: return cpu::Function::Gelu;
    case Activation::GeluTanh: return cpu::Function::GeluTanh;
    case Activation::Relu: return cpu::Function::Relu;
    case Activation::Tanh: return cpu::Function::Tanh;
  }
  throw Error::internal("activation {}", static_cast<int>(activation));
}

}  // namespace

at::Tensor activation_forward(Activation activation, const at::Tensor& x) {
  const profile::Scope span(profile::Kind::Activation, [&] { return 2 * x.nbytes(); });
  detail::require_contiguous(x, "activation_forward: x");
  at::Tensor y = at::empty(x.sizes(), x.options());
  const cpu::Dtype dtype = detail::dtype_of(x, "activation_forward: x");
  split_grain_work(x.numel(), detail::kElementsPerPart, [&](int64_t begin, int64_t end, int) {
    cpu::table().activation(function_of(activation), dtype, detail::further(x.const_data_ptr(), begin, dtype),
                            detail::further(y.mutable_data_ptr(), begin, dtype), end - begin);
  });
  return y;
}

at::Tensor activation_backward(Activation activation, const at::Tensor& dy, const at::Tensor& x, at::Tensor* y) {
  const profile::Scope span(profile::Kind::Activation, [&] { return (y == nullptr ? 3 : 4) * x.nbytes(); });
  for (const auto* operand : {&dy, &x}) {
    detail::require_contiguous(*operand, "activation_backward: dy, x");
    detail::require_shape(*operand, x.sizes(), "activation_backward: dy, x");
    detail::require_dtype(*operand, x.scalar_type(), "activation_backward: dy, x");
  }
  at::Tensor dx = at::empty(x.sizes(), x.options());
  if (y != nullptr) *y = at::empty(x.sizes(), x.options());
  void* const values = y == nullptr ? nullptr : y->mutable_data_ptr();
  const cpu::Dtype dtype = detail::dtype_of(x, "activation_backward: x");
  split_grain_work(x.numel(), detail::kElementsPerPart, [&](int64_t begin, int64_t end, int) {
    cpu::table().activation_backward(function_of(activation), dtype, detail::further(dy.const_data_ptr(), begin, dtype),
                                     detail::further(x.const_data_ptr(), begin, dtype),
                                     detail::further(dx.mutable_data_ptr(), begin, dtype),
                                     detail::further(values, begin, dtype), end - begin);
  });
  return dx;
}

}  // namespace lockstep::kernels
