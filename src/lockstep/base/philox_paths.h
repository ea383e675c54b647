#pragma once

#include <cstdint>

/// Philox4x32-10 over consecutive blocks, one source per instruction set. Raw pointers and no inline functions: what a
/// source compiled for AVX-512 leaves in the program must not be picked by the linker for a processor without it.
/// Each writes the first `count` words of blocks `block`, `block + 1`, ... to `out`, four per block.
/// `keys` holds round r's two key words at 2 r and 2 r + 1.
namespace lockstep::detail {

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53, kPhiloxMultiplier1 = 0xCD9E8D57;
inline constexpr int kPhiloxRounds = 10;
inline constexpr int kPhiloxKeyWords = 2 * kPhiloxRounds;

void philox_plain(uint32_t* out, uint64_t count, const uint32_t* keys, uint64_t block, uint64_t ordinal);
void philox_avx2(uint32_t* out, uint64_t count, const uint32_t* keys, uint64_t block, uint64_t ordinal);
void philox_avx512(uint32_t* out, uint64_t count, const uint32_t* keys, uint64_t block, uint64_t ordinal);

}  // namespace lockstep::detail
