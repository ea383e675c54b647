#include "lockstep/tensor/exact_paths.h"

#include <immintrin.h>

namespace lockstep::tensor::detail {
namespace {

/// See exact_avx512.cpp.
constexpr int64_t kPrefetchBytes = 2048;

/// The conversions below need rounding to nearest even. Whoever changed the mode gets it back.
class NearestEven {
 public:
  NearestEven() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ & ~kRoundingBits); }
  NearestEven(const NearestEven&) = delete;
  NearestEven& operator=(const NearestEven&) = delete;
  ~NearestEven() { _mm_setcsr(saved_); }

 private:
  static constexpr unsigned kRoundingBits = 0x6000;
  unsigned saved_;
};

/// acc[0..4) += round(x), ties to even, |x| < 2^62 and x a float's value. AVX2 cannot convert to int64, so x is cut in
/// two, each part rounded by adding a number so large that its last bit is the unit wanted; that bit pattern, less
/// the large number's, is the integer. `high` takes multiples of 2^28. What remains is at most 2^27 and exact: where
/// x >= 2^27, its 24 bits are multiples of 2^4.
inline void add_4(int64_t* acc, __m128 scaled) {
  const __m256d magic_high = _mm256_set1_pd(0x1.8p80);
  const __m256d magic_low = _mm256_set1_pd(0x1.8p52);
  constexpr uint64_t kHighBits = 0x44F8000000000000, kLowBits = 0x4338000000000000;  // patterns of the two
  const __m256i both = _mm256_set1_epi64x(static_cast<int64_t>((kHighBits << 28) + kLowBits));
  const __m256d x = _mm256_cvtps_pd(scaled);
  const __m256d high = _mm256_add_pd(x, magic_high);
  const __m256d rest = _mm256_sub_pd(x, _mm256_sub_pd(high, magic_high));
  const __m256d low = _mm256_add_pd(rest, magic_low);
  const __m256i high_part = _mm256_slli_epi64(_mm256_castpd_si256(high), 28);
  const __m256i integer = _mm256_sub_epi64(_mm256_add_epi64(high_part, _mm256_castpd_si256(low)), both);
  auto* where = reinterpret_cast<__m256i*>(acc);
  _mm256_storeu_si256(where, _mm256_add_epi64(_mm256_loadu_si256(where), integer));
}

/// Eight contributions as float bits. Returns the lanes out of range, all ones; those add 0.
inline __m256i add_8(int64_t* acc, __m256i bits, __m256 scale, __m256i largest) {
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i left_out = _mm256_cmpgt_epi32(magnitude, largest);
  const __m256 kept = _mm256_castsi256_ps(_mm256_andnot_si256(left_out, bits));
  const __m256 scaled = _mm256_mul_ps(kept, scale);
  add_4(acc, _mm256_castps256_ps128(scaled));
  add_4(acc + 4, _mm256_extractf128_ps(scaled, 1));
  return left_out;
}

inline __m256 power_of_two(int exponent) {
  return _mm256_castsi256_ps(_mm256_set1_epi32((exponent + 127) << 23));
}

/// Adds the first count / 8 * 8 values. Not inlined: no operation may move out of NearestEven's life.
template <class T, class LoadBits>
[[gnu::noinline]] bool add_whole_vectors(int64_t* acc, const T* values, int64_t count, int scale_bits,
                                         uint32_t threshold_bits, LoadBits load_bits) {
  const __m256 scale = power_of_two(scale_bits);
  const __m256i largest = _mm256_set1_epi32(static_cast<int>(threshold_bits) - 1);
  __m256i left_out = _mm256_setzero_si256();
  for (int64_t i = 0; i + 8 <= count; i += 8) {
    _mm_prefetch(reinterpret_cast<const char*>(acc + i) + kPrefetchBytes, _MM_HINT_T0);
    left_out = _mm256_or_si256(left_out, add_8(acc + i, load_bits(values + i), scale, largest));
  }
  return _mm256_testz_si256(left_out, left_out) == 0;
}

}  // namespace

bool add_avx2(int64_t* acc, const float* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  const NearestEven rounding;
  const bool left_out = add_whole_vectors(acc, values, count, scale_bits, threshold_bits, [](const float* eight) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(eight));
  });
  const int64_t done = count / 8 * 8;
  const bool rest_left_out = add_plain(acc + done, values + done, count - done, scale_bits, threshold_bits);
  return left_out || rest_left_out;
}

bool add_bf16_avx2(int64_t* acc, const uint16_t* values, int64_t count, int scale_bits, uint32_t threshold_bits) {
  const NearestEven rounding;
  const bool left_out = add_whole_vectors(acc, values, count, scale_bits, threshold_bits, [](const uint16_t* eight) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(eight));
    return _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
  });
  const int64_t done = count / 8 * 8;
  const bool rest_left_out = add_bf16_plain(acc + done, values + done, count - done, scale_bits, threshold_bits);
  return left_out || rest_left_out;
}

void to_float_avx2(float* out, const int64_t* acc, int64_t count, double scale) {
  // double(x) = double(high 32 bits) * 2^32 + double(low 32 bits), rounded once, by the last addition. The halves
  // are placed under the exponents of 2^84 and 2^52 (the high one with its sign bit turned, hence 2^63 in the bias).
  const __m256i magic_low = _mm256_set1_epi64x(0x4330000000000000);
  const __m256i magic_high = _mm256_set1_epi64x(0x4530000080000000);
  const __m256d bias = _mm256_castsi256_pd(_mm256_set1_epi64x(0x4530000080100000));  // 2^84 + 2^63 + 2^52
  const __m256d factor = _mm256_set1_pd(scale);
  int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const __m256i sums = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(acc + i));
    const __m256i low = _mm256_blend_epi32(magic_low, sums, 0x55);
    const __m256i high = _mm256_xor_si256(_mm256_srli_epi64(sums, 32), magic_high);
    const __m256d value = _mm256_add_pd(_mm256_sub_pd(_mm256_castsi256_pd(high), bias), _mm256_castsi256_pd(low));
    _mm_storeu_ps(out + i, _mm256_cvtpd_ps(_mm256_mul_pd(value, factor)));
  }
  to_float_plain(out + i, acc + i, count - i, scale);
}

}  // namespace lockstep::tensor::detail
