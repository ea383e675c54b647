#pragma once

#include "lockstep/base/grain_team.h"
#include "lockstep/kernels/cpu/table.h"

/// How kernels share a grain's rows among its threads. Every row's bits are its own, so parts cannot show.
namespace lockstep::kernels::detail {

/// Rows that are worth a part of their own: 64 KiB, and a multiple of 16.
inline int64_t rows_per_part(int64_t row_bytes) {
  constexpr int64_t kPartBytes = int64_t{64} << 10, kStep = 16;
  return (std::max<int64_t>(kPartBytes / std::max<int64_t>(row_bytes, 1), 1) + kStep - 1) / kStep * kStep;
}

/// Elements of a flat operand, in whole cache lines.
constexpr int64_t kElementsPerPart = int64_t{16} << 10;

inline int64_t bytes_of(cpu::Dtype dtype) {
  switch (dtype) {
    case cpu::Dtype::Bf16: return 2;
    case cpu::Dtype::F32: return 4;
    case cpu::Dtype::F64: break;
  }
  return 8;
}
/// `elements` further; a null pointer stays one.
inline const void* further(const void* data, int64_t elements, cpu::Dtype dtype) {
  return data == nullptr ? nullptr : static_cast<const char*>(data) + elements * bytes_of(dtype);
}
inline void* further(void* data, int64_t elements, cpu::Dtype dtype) {
  return data == nullptr ? nullptr : static_cast<char*>(data) + elements * bytes_of(dtype);
}
inline cpu::Dtype accumulator_of(cpu::Dtype dtype) { return dtype == cpu::Dtype::F64 ? cpu::Dtype::F64 : cpu::Dtype::F32; }

}  // namespace lockstep::kernels::detail
