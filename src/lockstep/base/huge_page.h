#pragma once

#include <cstddef>

namespace lockstep {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

/// Makes one huge page of the kHugePageBytes at `page`, a multiple of that, in memory that processes share: there a first
/// write gives small ones unless an administrator has changed shmem_enabled. What was written stays, also while others
/// write. False where the kernel refuses (before Linux 6.1, or no free memory in one piece): the pages are small then.
/// Thread-safe.
bool take_huge_page(std::byte* page);

}  // namespace lockstep
