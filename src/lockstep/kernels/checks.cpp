#include "lockstep/kernels/checks.h"

#include "lockstep/base/error.h"

#include <fmt/ranges.h>

namespace lockstep::kernels::detail {

cpu::Dtype dtype_of(at::ScalarType type, std::string_view what) {
  switch (type) {
    case at::kBFloat16: return cpu::Dtype::Bf16;
    case at::kFloat: return cpu::Dtype::F32;
    case at::kDouble: return cpu::Dtype::F64;
    default: break;
  }
  throw Error::internal("{} is {}; the kernels take BFloat16, Float and Double.", what, c10::toString(type));
}

cpu::Dtype dtype_of(const at::Tensor& x, std::string_view what) { return dtype_of(x.scalar_type(), what); }

at::ScalarType accumulator_of(at::ScalarType type) { return type == at::kDouble ? at::kDouble : at::kFloat; }

void require_contiguous(const at::Tensor& x, std::string_view what) {
  LS_CHECK(x.defined() && x.device().is_cpu() && x.is_contiguous(), "{} must be a contiguous CPU tensor", what);
}

void require_shape(const at::Tensor& x, at::IntArrayRef shape, std::string_view what) {
  LS_CHECK(x.defined() && x.sizes() == shape, "{} is [{}], expected [{}]", what,
           fmt::join(x.defined() ? x.sizes() : at::IntArrayRef{}, ", "), fmt::join(shape, ", "));
}

void require_dtype(const at::Tensor& x, at::ScalarType type, std::string_view what) {
  LS_CHECK(x.scalar_type() == type, "{} is {}, expected {}", what, c10::toString(x.scalar_type()),
           c10::toString(type));
}

}  // namespace lockstep::kernels::detail
