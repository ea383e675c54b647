#pragma once

#include "lockstep/kernels/cpu/table.h"

#include <ATen/core/Tensor.h>

#include <string_view>

/// What every kernel asks of its operands. A wrong operand is a bug of ours: Error{Internal} naming it.
namespace lockstep::kernels::detail {

/// bfloat16, float32 or float64.
cpu::Dtype dtype_of(const at::Tensor& x, std::string_view what);
cpu::Dtype dtype_of(at::ScalarType type, std::string_view what);
/// float64 for float64, else float32: the type of statistics and sums.
at::ScalarType accumulator_of(at::ScalarType type);

void require_contiguous(const at::Tensor& x, std::string_view what);
void require_shape(const at::Tensor& x, at::IntArrayRef shape, std::string_view what);
void require_dtype(const at::Tensor& x, at::ScalarType type, std::string_view what);

}  // namespace lockstep::kernels::detail
