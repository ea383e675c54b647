#include "lockstep/base/philox_paths.h"

#include <immintrin.h>

// By hand: g++ 12's vectoriser does not find the widening multiplication of 32-bit lanes.
namespace lockstep::detail {
namespace {

constexpr uint64_t kWordsOfFour = 16;

/// Four blocks, one per 64-bit lane. Only the lower half of a lane counts: the multiplication reads no more, and what
/// the upper halves hold is never carried down.
struct Four {
  __m256i c0, c1, c2, c3;
};

/// Lane 2 j + k counts block 2 k + j: so store_words() needs no moves across 128-bit parts.
inline Four counters_of_four(uint64_t block, uint64_t ordinal) {
  const __m256i number =
      _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(block)), _mm256_setr_epi64x(0, 2, 1, 3));
  const __m256i sample = _mm256_set1_epi64x(static_cast<int64_t>(ordinal));
  return {number, _mm256_srli_epi64(number, 32), sample, _mm256_srli_epi64(sample, 32)};
}

inline __m256i key_of_four(uint32_t key) { return _mm256_set1_epi32(static_cast<int>(key)); }

inline Four philox_round_of_four(const Four& c, const uint32_t* keys) {
  const __m256i product0 = _mm256_mul_epu32(c.c0, key_of_four(kPhiloxMultiplier0));
  const __m256i product1 = _mm256_mul_epu32(c.c2, key_of_four(kPhiloxMultiplier1));
  return {_mm256_xor_si256(_mm256_srli_epi64(product1, 32), _mm256_xor_si256(c.c1, key_of_four(keys[0]))), product1,
          _mm256_xor_si256(_mm256_srli_epi64(product0, 32), _mm256_xor_si256(c.c3, key_of_four(keys[1]))), product0};
}

/// `even` in the lower halves of the 64-bit lanes, `odd` in the upper ones.
inline __m256i pairs_of_four(__m256i even, __m256i odd) {
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}

inline void store_words(uint32_t* out, const Four& c) {
  const __m256i first = pairs_of_four(c.c0, c.c1);
  const __m256i second = pairs_of_four(c.c2, c.c3);
  auto* blocks = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(blocks, _mm256_unpacklo_epi64(first, second));
  _mm256_storeu_si256(blocks + 1, _mm256_unpackhi_epi64(first, second));
}

}  // namespace

void philox_avx2(uint32_t* out, uint64_t count, const uint32_t* keys, uint64_t block, uint64_t ordinal) {
  for (; count >= 2 * kWordsOfFour; count -= 2 * kWordsOfFour, out += 2 * kWordsOfFour, block += 8) {
    // Two chains: a round waits longer for its own multiplications than it takes to issue them.
    Four a = counters_of_four(block, ordinal);
    Four b = counters_of_four(block + 4, ordinal);
    for (int round = 0; round < kPhiloxRounds; ++round) {
      a = philox_round_of_four(a, keys + 2 * round);
      b = philox_round_of_four(b, keys + 2 * round);
    }
    store_words(out, a);
    store_words(out + kWordsOfFour, b);
  }
  if (count == 0) return;
  uint32_t words[2 * kWordsOfFour];
  for (uint64_t part = 0; part < 2; ++part) {
    Four c = counters_of_four(block + 4 * part, ordinal);
    for (int round = 0; round < kPhiloxRounds; ++round) c = philox_round_of_four(c, keys + 2 * round);
    store_words(words + part * kWordsOfFour, c);
  }
  for (uint64_t i = 0; i < count; ++i) out[i] = words[i];
}

}  // namespace lockstep::detail
