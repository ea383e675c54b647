#include "lockstep/tensor/flat_buffer.h"

#include "lockstep/base/error.h"
#include "lockstep/base/huge_page.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

namespace lockstep::tensor {
namespace {

constexpr size_t kPageBytes = 4096;

/// What one thread takes at a time.
constexpr size_t kTakenBytes = 4 * kHugePageBytes;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

/// `bytes` of zeros, beginning at a multiple of `alignment`; both are multiples of the page size.
void* map_aligned(size_t bytes, size_t alignment) {
  const size_t slack = alignment - kPageBytes;
  void* mapped = mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    throw Error::environment("no memory for a buffer of {} MiB ({}): use a smaller model or a machine with more memory",
                             bytes >> 20, std::strerror(errno));
  }
  const auto begin = reinterpret_cast<uintptr_t>(mapped);
  const uintptr_t aligned = round_up(begin, alignment);
  if (aligned > begin) {
    munmap(mapped, aligned - begin);
  }
  const size_t tail = begin + bytes + slack - (aligned + bytes);
  if (tail > 0) {
    munmap(reinterpret_cast<void*>(aligned + bytes), tail);
  }
  return reinterpret_cast<void*>(aligned);
}

/// Cut at multiples of a huge page, so that no two threads want the same one.
void add_parts(std::span<const std::byte> buffer, std::vector<std::span<const std::byte>>& parts) {
  while (!buffer.empty()) {
    const auto begin = reinterpret_cast<uintptr_t>(buffer.data());
    const size_t size = std::min(buffer.size(), round_up(begin + 1, kTakenBytes) - begin);
    parts.push_back(buffer.first(size));
    buffer = buffer.subspan(size);
  }
}

void take_part(std::span<const std::byte> part) {
#ifdef MADV_POPULATE_WRITE
  const uintptr_t begin = reinterpret_cast<uintptr_t>(part.data()) / kPageBytes * kPageBytes;
  const size_t bytes = reinterpret_cast<uintptr_t>(part.data()) + part.size() - begin;
  madvise(reinterpret_cast<void*>(begin), bytes, MADV_POPULATE_WRITE);
#endif
}

}  // namespace

at::Tensor zero_flat_buffer(int64_t num_elements, at::ScalarType dtype, Pages pages) {
  LS_CHECK(num_elements >= 0, "num_elements = {}", num_elements);
  const size_t wanted = static_cast<size_t>(num_elements) * c10::elementSize(dtype);
  const bool huge = pages == Pages::Huge && wanted >= kHugePageBytes;
  const size_t bytes = round_up(std::max(wanted, kPageBytes), kPageBytes);
  void* data = map_aligned(bytes, huge ? kHugePageBytes : kPageBytes);
  if (huge) {
    madvise(data, bytes, MADV_HUGEPAGE);  // a wish: a kernel without huge pages gives small ones
  } else if (pages == Pages::Small) {
    madvise(data, bytes, MADV_NOHUGEPAGE);  // where the machine gives them to everyone
  }
  return at::from_blob(
      data, {num_elements}, [bytes](void* mapped) { munmap(mapped, bytes); }, at::TensorOptions().dtype(dtype));
}

void take_pages(std::span<const std::span<const std::byte>> buffers, ThreadTeam& team) {
  std::vector<std::span<const std::byte>> parts;
  for (const auto buffer : buffers) add_parts(buffer, parts);
  team.run(parts.size(), [&](size_t item, int) { take_part(parts[item]); });
}

}  // namespace lockstep::tensor
