#pragma once

#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::kernels::test {

/// Values between -1 and 1, a function of (shape, ordinal) alone, rounded to `dtype`.
at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype, uint64_t ordinal);
at::Tensor ints(const std::vector<int32_t>& values);
at::Tensor longs(const std::vector<int64_t>& values);

/// A copy whose data begins `bytes` past a 64-byte boundary.
at::Tensor shifted(const at::Tensor& x, int64_t bytes);
bool same_bits(const at::Tensor& a, const at::Tensor& b);

/// Largest |a - b| over all elements, in double.
double max_difference(const at::Tensor& a, const at::Tensor& b);
/// ||a - b|| / ||b|| in double.
double relative_l2(const at::Tensor& a, const at::Tensor& b);
/// Spacing of numbers at 1: 2^-7 for bfloat16, 2^-23 for float32.
double epsilon(at::ScalarType dtype);

/// Every path of attention that this processor has for such operands.
std::vector<AttentionPath> attention_paths(at::ScalarType dtype, int64_t width);

/// A kernel with its operands: `run` gets them (perhaps moved elsewhere in memory), may overwrite them and returns all
/// results, overwritten operands included.
struct Case {
  std::string name;
  std::vector<at::Tensor> operands;
  std::function<std::vector<at::Tensor>(std::vector<at::Tensor>)> run;
};
/// Every kernel in every dtype it has, at the shapes of tiny models and of SmolLM2-135M.
std::vector<Case> all_cases();

RopeTable small_rope_table(int64_t width, int64_t positions, at::ScalarType dtype);

}  // namespace lockstep::kernels::test
