#include "lockstep/tensor/exact_paths.h"

#include <immintrin.h>

namespace lockstep::tensor::detail {
namespace {

constexpr int kNearestEven = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

/// 16 contributions as float bits; lanes outside `lanes` are left alone. Returns the lanes within range.
/// The product with 2^s is exact: a power of two, and what it could overflow is masked out.
inline __mmask16 add_16(int64_t* acc, __m512i bits, __m512 scale, __m512i threshold, __mmask16 lanes) {
  const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  const __mmask16 in_range = _mm512_mask_cmplt_epu32_mask(lanes, magnitude, threshold);
  const __m512 scaled = _mm512_mul_ps(_mm512_castsi512_ps(bits), scale);
  const auto low_lanes = static_cast<__mmask8>(in_range & 0xFF);
  const auto high_lanes = static_cast<__mmask8>(in_range >> 8);
  const __m512i low = _mm512_maskz_cvt_roundps_epi64(low_lanes, _mm512_castps512_ps256(scaled), kNearestEven);
  const __m512i high = _mm512_maskz_cvt_roundps_epi64(high_lanes, _mm512_extractf32x8_ps(scaled, 1), kNearestEven);
  if (lanes == 0xFFFF) {
    _mm512_storeu_si512(acc, _mm512_add_epi64(_mm512_loadu_si512(acc), low));
    _mm512_storeu_si512(acc + 8, _mm512_add_epi64(_mm512_loadu_si512(acc + 8), high));
  } else {
    const __m512i old_low = _mm512_maskz_loadu_epi64(low_lanes, acc);
    const __m512i old_high = _mm512_maskz_loadu_epi64(high_lanes, acc + 8);
    _mm512_mask_storeu_epi64(acc, low_lanes, _mm512_add_epi64(old_low, low));
    _mm512_mask_storeu_epi64(acc + 8, high_lanes, _mm512_add_epi64(old_high, high));
  }
  return in_range;
}

inline __m512 power_of_two(int exponent) {
  return _mm512_castsi512_ps(_mm512_set1_epi32((exponent + 127) << 23));
}

inline __mmask16 first_lanes(int64_t count) { return static_cast<__mmask16>((1U << count) - 1); }

inline __m512i widen_bf16(__m256i values) { return _mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16); }

}  // namespace

bool add_avx512(int64_t* acc, const float* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  const __m512 scale = power_of_two(scale_bits);
  const __m512i threshold = _mm512_set1_epi32(static_cast<int>(threshold_bits));
  __mmask16 good = 0xFFFF;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    good &= add_16(acc + i, _mm512_loadu_si512(values + i), scale, threshold, 0xFFFF);
  }
  if (i < count) {
    const __mmask16 rest = first_lanes(count - i);
    const __mmask16 in_range = add_16(acc + i, _mm512_maskz_loadu_epi32(rest, values + i), scale, threshold, rest);
    good &= static_cast<__mmask16>(in_range | ~rest);
  }
  return good != 0xFFFF;
}

bool add_bf16_avx512(int64_t* acc, const uint16_t* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  const __m512 scale = power_of_two(scale_bits);
  const __m512i threshold = _mm512_set1_epi32(static_cast<int>(threshold_bits));
  __mmask16 good = 0xFFFF;
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(values + i));
    good &= add_16(acc + i, widen_bf16(half), scale, threshold, 0xFFFF);
  }
  if (i < count) {
    const __mmask16 rest = first_lanes(count - i);
    const __m256i half = _mm256_maskz_loadu_epi16(rest, values + i);
    const __mmask16 in_range = add_16(acc + i, widen_bf16(half), scale, threshold, rest);
    good &= static_cast<__mmask16>(in_range | ~rest);
  }
  return good != 0xFFFF;
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
