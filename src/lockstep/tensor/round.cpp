#include "lockstep/tensor/round.h"

#include "lockstep/base/error.h"

#include <bit>

namespace lockstep::tensor {
namespace {

/// Inlined into one function per instruction set. In integers: the processor's own instruction takes denormals for zero.
[[gnu::always_inline]] inline void round_body(uint16_t* __restrict out, const float* __restrict values, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(values[i]);
    const uint32_t nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    out[i] = static_cast<uint16_t>((bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FC0 : nearest);
  }
}

void round_plain(uint16_t* out, const float* values, size_t count) { round_body(out, values, count); }
[[gnu::target("avx2")]] void round_avx2(uint16_t* out, const float* values, size_t count) {
  round_body(out, values, count);
}
[[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")]] void round_avx512(
    uint16_t* out, const float* values, size_t count) {
  round_body(out, values, count);
}

}  // namespace

void round_to_bf16(std::span<uint16_t> out, std::span<const float> values, ExactPath path) {
  LS_CHECK(out.size() == values.size(), "{} roundings of {} values", out.size(), values.size());
  const auto round = path == ExactPath::Avx512 ? round_avx512 : path == ExactPath::Avx2 ? round_avx2 : round_plain;
  round(out.data(), values.data(), values.size());
}

}  // namespace lockstep::tensor
