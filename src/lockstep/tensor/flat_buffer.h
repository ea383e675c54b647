#pragma once

#include "lockstep/base/thread_team.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::tensor {

enum class Pages {
  Huge,   ///< where the buffer is large enough and the kernel has them
  Small,  ///< for buffers of which a run may never write most: one huge page is taken whole for its first byte
};

/// A flat CPU tensor of zeros in pages of its own. Pages are given by the kernel at the first write, so the writing
/// thread decides where they lie. Throws Error{Environment} when memory is refused.
at::Tensor zero_flat_buffer(int64_t num_elements, at::ScalarType dtype, Pages pages = Pages::Huge);

/// Takes the pages of flat buffers from the kernel now, by all threads of the team. Clearing them is what the first
/// write costs, and where one tensor is half of a model one thread would do most of it. Values stay. A wish: kernels
/// before 5.14 leave the pages to the first write.
void take_pages(std::span<const std::span<const std::byte>> buffers, ThreadTeam& team);

}  // namespace lockstep::tensor
