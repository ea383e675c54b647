#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace lockstep::tensor {

/// A flat CPU tensor of zeros in pages of its own. Pages are given by the kernel at the first write, so the writing
/// thread decides where they lie; large buffers ask for huge pages. Throws Error{Environment} when memory is refused.
at::Tensor zero_flat_buffer(int64_t num_elements, at::ScalarType dtype);

}  // namespace lockstep::tensor
