#include "lockstep/tensor/exact_paths.h"

#include <cstring>

namespace lockstep::tensor::detail {
namespace {

/// round(c * 2^scale_bits), ties to even, in integers alone, so that no rounding mode matters. |c| * 2^scale_bits is
/// below 2^62. A float is m * 2^(e - 150) with m of 24 bits. (A denormal is read with an implicit 1 it does not have:
/// it is below 2^-126 and rounds to 0 either way.)
int64_t scaled_integer(uint32_t bits, int scale_bits) {
  const auto exponent = static_cast<int>((bits >> 23) & 0xFF);
  const uint64_t mantissa = (bits & 0x7FFFFF) | 0x800000;
  const int shift = exponent - 150 + scale_bits;
  uint64_t magnitude = 0;
  if (shift >= 0) {
    magnitude = mantissa << shift;
  } else if (shift >= -25) {
    const uint64_t odd = (mantissa >> -shift) & 1;
    const uint64_t below_half = (uint64_t{1} << (-shift - 1)) - 1;
    magnitude = (mantissa + below_half + odd) >> -shift;
  }
  return (bits >> 31) != 0 ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

bool add_bits(int64_t& acc, uint32_t bits, int scale_bits, uint32_t threshold_bits) {
  if ((bits & 0x7FFFFFFF) >= threshold_bits) [[unlikely]] {
    return true;
  }
  acc += scaled_integer(bits, scale_bits);
  return false;
}

}  // namespace

bool add_plain(int64_t* acc, const float* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  bool left_out = false;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, values + i, sizeof bits);
    left_out |= add_bits(acc[i], bits, scale_bits, threshold_bits);
  }
  return left_out;
}

bool add_bf16_plain(int64_t* acc, const uint16_t* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  bool left_out = false;
  for (int64_t i = 0; i < count; ++i) {
    left_out |= add_bits(acc[i], static_cast<uint32_t>(values[i]) << 16, scale_bits, threshold_bits);
  }
  return left_out;
}

void to_float_plain(float* out, const int64_t* acc, int64_t count, double scale) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = static_cast<float>(static_cast<double>(acc[i]) * scale);
  }
}

}  // namespace lockstep::tensor::detail
