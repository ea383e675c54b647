#include "lockstep/tensor/exact.h"

#include "lockstep/base/error.h"
#include "lockstep/tensor/exact_paths.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace lockstep::tensor {
namespace {

constexpr int kMaxScaleBits = 62;

/// Bit pattern of the smallest float f with f * 2^scale_bits >= limit, at most that of infinity: then
/// "|c| * 2^s >= limit, or c is not finite" is one integer comparison.
uint32_t threshold_bits(int scale_bits, double limit) {
  LS_CHECK(scale_bits >= 0 && scale_bits <= kMaxScaleBits, "scale_bits = {}", scale_bits);
  LS_CHECK(limit >= 1 && limit <= 0x1p62, "limit = {}", limit);
  const double threshold = std::ldexp(limit, -scale_bits);
  auto rounded = static_cast<float>(threshold);
  if (static_cast<double>(rounded) < threshold) {
    rounded = std::nextafter(rounded, std::numeric_limits<float>::infinity());
  }
  return std::bit_cast<uint32_t>(rounded);
}

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }
uint32_t bits_of(uint16_t bf16) { return static_cast<uint32_t>(bf16) << 16; }

/// What was left out by a path, looked at again: rare, so the paths need not tell the cases apart.
template <class T>
ExactFlags classify(std::span<const T> values, uint32_t threshold) {
  ExactFlags flags;
  for (const T value : values) {
    const uint32_t magnitude = bits_of(value) & 0x7FFFFFFF;
    flags.non_finite |= magnitude >= 0x7F800000;
    flags.range |= magnitude >= threshold && magnitude < 0x7F800000;
  }
  return flags;
}

template <class T>
using Path = bool (*)(int64_t*, const T*, int64_t, int, uint32_t);

template <class T>
ExactFlags run(Path<T> path, std::span<int64_t> acc, std::span<const T> values, int scale_bits, double limit) {
  LS_CHECK(acc.size() == values.size(), "{} sums, {} values", acc.size(), values.size());
  const uint32_t threshold = threshold_bits(scale_bits, limit);
  if (!path(acc.data(), values.data(), std::ssize(values), scale_bits, threshold)) [[likely]] {
    return {};
  }
  return classify(values, threshold);
}

Path<float> adder(ExactPath path) {
  return path == ExactPath::Avx512 ? detail::add_avx512
         : path == ExactPath::Avx2 ? detail::add_avx2
                                   : detail::add_plain;
}

Path<uint16_t> adder_bf16(ExactPath path) {
  return path == ExactPath::Avx512 ? detail::add_bf16_avx512
         : path == ExactPath::Avx2 ? detail::add_bf16_avx2
                                   : detail::add_bf16_plain;
}

/// Whether the stores past the caches take this span.
bool streamable(std::span<const int64_t> acc, ExactPath path) {
  return path == ExactPath::Avx512 && acc.size() % 16 == 0 && reinterpret_cast<uintptr_t>(acc.data()) % 64 == 0;
}

}  // namespace

double exact_limit(int64_t num_contributions) {
  LS_CHECK(num_contributions >= 1 && num_contributions <= (int64_t{1} << 62), "num_contributions = {}",
           num_contributions);
  const auto log2_rounded_up = static_cast<int>(std::bit_width(static_cast<uint64_t>(num_contributions - 1)));
  return std::ldexp(1.0, 62 - log2_rounded_up);
}

ExactPath best_exact_path() {
  static const ExactPath best = [] {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) {
      return ExactPath::Avx512;
    }
    return __builtin_cpu_supports("avx2") ? ExactPath::Avx2 : ExactPath::Plain;
  }();
  return best;
}

ExactFlags exact_add(std::span<int64_t> acc, std::span<const float> values, int scale_bits, double limit,
                     ExactPath path) {
  return run(adder(path), acc, values, scale_bits, limit);
}

ExactFlags exact_add_bf16(std::span<int64_t> acc, std::span<const uint16_t> values, int scale_bits, double limit,
                          ExactPath path) {
  return run(adder_bf16(path), acc, values, scale_bits, limit);
}

ExactFlags exact_set(std::span<int64_t> acc, std::span<const float> values, int scale_bits, double limit,
                     ExactPath path) {
  if (streamable(acc, path)) return run<float>(detail::set_avx512, acc, values, scale_bits, limit);
  std::fill(acc.begin(), acc.end(), 0);
  return exact_add(acc, values, scale_bits, limit, path);
}

ExactFlags exact_set_bf16(std::span<int64_t> acc, std::span<const uint16_t> values, int scale_bits, double limit,
                          ExactPath path) {
  if (streamable(acc, path)) return run<uint16_t>(detail::set_bf16_avx512, acc, values, scale_bits, limit);
  std::fill(acc.begin(), acc.end(), 0);
  return exact_add_bf16(acc, values, scale_bits, limit, path);
}

ExactFlags exact_add_double(std::span<int64_t> acc, std::span<const double> values, int scale_bits, double limit) {
  LS_CHECK(acc.size() == values.size(), "{} sums, {} values", acc.size(), values.size());
  LS_CHECK(scale_bits >= 0 && scale_bits <= kMaxScaleBits, "scale_bits = {}", scale_bits);
  ExactFlags flags;
  for (size_t i = 0; i < values.size(); ++i) {
    const double scaled = std::ldexp(values[i], scale_bits);
    if (!std::isfinite(values[i])) {
      flags.non_finite = true;
    } else if (std::abs(scaled) >= limit) {
      flags.range = true;
    } else {
      acc[i] += std::llrint(scaled);
    }
  }
  return flags;
}

void exact_to_float(std::span<float> out, std::span<const int64_t> acc, int scale_bits, ExactPath path) {
  LS_CHECK(out.size() == acc.size(), "{} values, {} sums", out.size(), acc.size());
  LS_CHECK(scale_bits >= 0 && scale_bits <= kMaxScaleBits, "scale_bits = {}", scale_bits);
  const auto convert = path == ExactPath::Avx512 ? detail::to_float_avx512
                       : path == ExactPath::Avx2 ? detail::to_float_avx2
                                                 : detail::to_float_plain;
  convert(out.data(), acc.data(), std::ssize(acc), std::ldexp(1.0, -scale_bits));
}

}  // namespace lockstep::tensor
