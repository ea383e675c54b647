#include "lockstep/tensor/exact_paths.h"

#include <immintrin.h>

namespace lockstep::tensor::detail {
namespace {

constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

/// Sums are far larger than the caches and are walked from front to back, 128 bytes at a time; the processor's own
/// prefetchers stop at every 4 KiB. This far ahead (bytes) was the fastest of 512 to 4,096 with two threads.
constexpr int64_t kPrefetchBytes = 2048;

inline void prefetch_sums(const int64_t* acc) {
  const auto* ahead = reinterpret_cast<const char*>(acc) + kPrefetchBytes;
  _mm_prefetch(ahead, _MM_HINT_T0);
  _mm_prefetch(ahead + 64, _MM_HINT_T0);
}

/// 16 contributions as integers; those out of range are 0.
struct Integers16 {
  __m512i low, high;
  __mmask16 in_range;
};

/// From float bits; lanes outside `lanes` count as out of range. The product with 2^s is exact: a power of two, and
/// what it could overflow is masked out.
inline Integers16 to_integers(__m512i bits, __m512 scale, __m512i threshold, __mmask16 lanes) {
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  const __mmask16 in_range = _mm512_mask_cmplt_epu32_mask(lanes, magnitude, threshold);
  const __m512 scaled = _mm512_mul_ps(_mm512_castsi512_ps(bits), scale);
  const auto low_lanes = static_cast<__mmask8>(in_range & 0xFF);
  const auto high_lanes = static_cast<__mmask8>(in_range >> 8);
  return {_mm512_maskz_cvt_roundps_epi64(low_lanes, _mm512_castps512_ps256(scaled), kNearestEven),
          _mm512_maskz_cvt_roundps_epi64(high_lanes, _mm512_extractf32x8_ps(scaled, 1), kNearestEven), in_range};
}

inline __mmask16 add_16(int64_t* acc, __m512i bits, __m512 scale, __m512i threshold) {
  const Integers16 integers = to_integers(bits, scale, threshold, 0xFFFF);
  _mm512_storeu_si512(acc, _mm512_add_epi64(_mm512_loadu_si512(acc), integers.low));
  _mm512_storeu_si512(acc + 8, _mm512_add_epi64(_mm512_loadu_si512(acc + 8), integers.high));
  return integers.in_range;
}

/// The first `count` < 16 lanes; the others are left alone. Returns the lanes within range and the others.
inline __mmask16 add_rest(int64_t* acc, __m512i bits, __m512 scale, __m512i threshold, int64_t count) {
  const auto lanes = static_cast<__mmask16>((1U << count) - 1);
  const Integers16 integers = to_integers(bits, scale, threshold, lanes);
  const auto low_lanes = static_cast<__mmask8>(lanes & 0xFF);
  const auto high_lanes = static_cast<__mmask8>(lanes >> 8);
  const __m512i low = _mm512_add_epi64(_mm512_maskz_loadu_epi64(low_lanes, acc), integers.low);
  const __m512i high = _mm512_add_epi64(_mm512_maskz_loadu_epi64(high_lanes, acc + 8), integers.high);
  _mm512_mask_storeu_epi64(acc, low_lanes, low);
  _mm512_mask_storeu_epi64(acc + 8, high_lanes, high);
  return static_cast<__mmask16>(integers.in_range | ~lanes);
}

/// Past the caches: nobody reads these sums before the next grain's contribution.
inline __mmask16 set_16(int64_t* acc, __m512i bits, __m512 scale, __m512i threshold) {
  const Integers16 integers = to_integers(bits, scale, threshold, 0xFFFF);
  _mm512_stream_si512(reinterpret_cast<__m512i*>(acc), integers.low);
  _mm512_stream_si512(reinterpret_cast<__m512i*>(acc + 8), integers.high);
  return integers.in_range;
}

inline __m512 power_of_two(int exponent) {
  return _mm512_castsi512_ps(_mm512_set1_epi32((exponent + 127) << 23));
}

inline __m512i bits_16(const float* values) { return _mm512_loadu_si512(values); }

inline __m512i bits_16(const uint16_t* values) {
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(values))), 16);
}

inline __m512i first_bits(const float* values, int64_t count) {
  return _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1U << count) - 1), values);
}

inline __m512i first_bits(const uint16_t* values, int64_t count) {
  const __m256i half = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1U << count) - 1), values);
  return _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
}

template <class T>
bool add_values(int64_t* acc, const T* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  const __m512 scale = power_of_two(scale_bits);
  const __m512i threshold = _mm512_set1_epi32(static_cast<int>(threshold_bits));
  __mmask16 good = 0xFFFF;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    prefetch_sums(acc + i);
    good &= add_16(acc + i, bits_16(values + i), scale, threshold);
  }
  if (i < count) good &= add_rest(acc + i, first_bits(values + i, count - i), scale, threshold, count - i);
  return good != 0xFFFF;
}

template <class T>
bool set_values(int64_t* acc, const T* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  const __m512 scale = power_of_two(scale_bits);
  const __m512i threshold = _mm512_set1_epi32(static_cast<int>(threshold_bits));
  __mmask16 good = 0xFFFF;
  for (int64_t i = 0; i < count; i += 16) good &= set_16(acc + i, bits_16(values + i), scale, threshold);
  _mm_sfence();  // before the caller's unlock: such stores are not ordered by it
  return good != 0xFFFF;
}

}  // namespace

bool add_avx512(int64_t* acc, const float* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  return add_values(acc, values, count, scale_bits, threshold_bits);
}

bool add_bf16_avx512(int64_t* acc, const uint16_t* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  return add_values(acc, values, count, scale_bits, threshold_bits);
}

bool set_avx512(int64_t* acc, const float* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  return set_values(acc, values, count, scale_bits, threshold_bits);
}

bool set_bf16_avx512(int64_t* acc, const uint16_t* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  return set_values(acc, values, count, scale_bits, threshold_bits);
}

void to_float_avx512(float* out, const int64_t* acc, int64_t count, double scale) {
  const __m512d factor = _mm512_set1_pd(scale);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m512d sums = _mm512_cvtepi64_pd(_mm512_loadu_si512(acc + i));
    _mm256_storeu_ps(out + i, _mm512_cvtpd_ps(_mm512_mul_pd(sums, factor)));
  }
  to_float_plain(out + i, acc + i, count - i, scale);
}

}  // namespace lockstep::tensor::detail
