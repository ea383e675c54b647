#include "lockstep/base/philox_paths.h"

#include <immintrin.h>

// By hand: g++ 12's vectoriser does not find the widening multiplication of 32-bit lanes.
namespace lockstep::detail {
namespace {

constexpr uint64_t kWordsOfEight = 32;

/// Eight blocks, one per 64-bit lane. Only the lower half of a lane counts: the multiplication reads no more, and what
/// the upper halves hold is never carried down.
struct Eight {
  __m512i c0, c1, c2, c3;
};

/// Lane 2 j + k counts block 4 k + j: so last_round() needs no moves across 128-bit parts.
inline __m512i numbers_from(uint64_t block) {
  return _mm512_add_epi64(_mm512_set1_epi64(static_cast<int64_t>(block)), _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7));
}

inline Eight counters(__m512i numbers, uint64_t ordinal) {
  const __m512i sample = _mm512_set1_epi64(static_cast<int64_t>(ordinal));
  return {numbers, _mm512_srli_epi64(numbers, 32), sample, _mm512_srli_epi64(sample, 32)};
}

inline __m512i xor_of_three(__m512i a, __m512i b, __m512i c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }

inline __m512i splat(uint32_t word) { return _mm512_set1_epi32(static_cast<int>(word)); }

/// The halves of each 64-bit lane change places.
inline __m512i swapped(__m512i x) { return _mm512_shuffle_epi32(x, _MM_PERM_CDAB); }

inline Eight philox_round(const Eight& c, const uint32_t* keys) {
  const __m512i product0 = _mm512_mul_epu32(c.c0, splat(kPhiloxMultiplier0));
  const __m512i product1 = _mm512_mul_epu32(c.c2, splat(kPhiloxMultiplier1));
  return {xor_of_three(_mm512_srli_epi64(product1, 32), c.c1, splat(keys[0])), product1,
          xor_of_three(swapped(product0), c.c3, splat(keys[1])), product0};
}

struct Words32 {
  __m512i low, high;
};

/// The last round, to the words of blocks 0 to 3 and 4 to 7: a product with its halves swapped already is two
/// neighbouring words, but for the key and the other word that the first of them is mixed with.
inline Words32 last_round(const Eight& c, const uint32_t* keys) {
  const __m512i product0 = _mm512_mul_epu32(c.c0, splat(kPhiloxMultiplier0));
  const __m512i product1 = _mm512_mul_epu32(c.c2, splat(kPhiloxMultiplier1));
  constexpr __mmask16 kLowerHalves = 0x5555;
  const __m512i first =
      _mm512_mask_ternarylogic_epi32(swapped(product1), kLowerHalves, c.c1, splat(keys[0]), 0x96);
  const __m512i second =
      _mm512_mask_ternarylogic_epi32(_mm512_rol_epi64(product0, 32), kLowerHalves, c.c3, splat(keys[1]), 0x96);
  return {_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second)};
}

/// The first `count` < 32.
inline void store_first(uint32_t* out, const Words32& words, uint64_t count) {
  const auto lanes = static_cast<uint32_t>((uint64_t{1} << count) - 1);
  _mm512_mask_storeu_epi32(out, static_cast<__mmask16>(lanes), words.low);
  _mm512_mask_storeu_epi32(out + 16, static_cast<__mmask16>(lanes >> 16), words.high);
}

inline void store_all(uint32_t* out, const Words32& words) {
  _mm512_storeu_si512(out, words.low);
  _mm512_storeu_si512(out + 16, words.high);
}

}  // namespace

void philox_avx512(uint32_t* out, uint64_t count, const uint32_t* keys, uint64_t block, uint64_t ordinal) {
  const uint32_t* last_keys = keys + kPhiloxKeyWords - 2;
  const __m512i eight = _mm512_set1_epi64(8);
  __m512i numbers = numbers_from(block);
  for (; count >= 2 * kWordsOfEight; count -= 2 * kWordsOfEight, out += 2 * kWordsOfEight) {
    // Two chains: a round waits longer for its own multiplications than it takes to issue them.
    Eight a = counters(numbers, ordinal);
    numbers = _mm512_add_epi64(numbers, eight);
    Eight b = counters(numbers, ordinal);
    numbers = _mm512_add_epi64(numbers, eight);
    for (int round = 0; round < kPhiloxRounds - 1; ++round) {
      a = philox_round(a, keys + 2 * round);
      b = philox_round(b, keys + 2 * round);
    }
    store_all(out, last_round(a, last_keys));
    store_all(out + kWordsOfEight, last_round(b, last_keys));
  }
  for (; count > 0; out += kWordsOfEight, numbers = _mm512_add_epi64(numbers, eight)) {
    Eight c = counters(numbers, ordinal);
    for (int round = 0; round < kPhiloxRounds - 1; ++round) c = philox_round(c, keys + 2 * round);
    const Words32 words = last_round(c, last_keys);
    if (count < kWordsOfEight) return store_first(out, words, count);
    store_all(out, words);
    count -= kWordsOfEight;
  }
}

}  // namespace lockstep::detail
