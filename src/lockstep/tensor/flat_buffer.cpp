#include "lockstep/tensor/flat_buffer.h"

#include "lockstep/base/error.h"

#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::tensor {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kHugePageBytes = size_t{2} << 20;

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

}  // namespace

at::Tensor zero_flat_buffer(int64_t num_elements, at::ScalarType dtype) {
  LS_CHECK(num_elements >= 0, "num_elements = {}", num_elements);
  const size_t wanted = static_cast<size_t>(num_elements) * c10::elementSize(dtype);
  const bool huge = wanted >= kHugePageBytes;
  const size_t bytes = round_up(std::max(wanted, kPageBytes), kPageBytes);
  void* data = map_aligned(bytes, huge ? kHugePageBytes : kPageBytes);
  if (huge) {
    madvise(data, bytes, MADV_HUGEPAGE);  // a wish: a kernel without huge pages gives small ones
  }
  return at::from_blob(
      data, {num_elements}, [bytes](void* mapped) { munmap(mapped, bytes); }, at::TensorOptions().dtype(dtype));
}

}  // namespace lockstep::tensor
