#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AMX_BF16__)
#include <immintrin.h>
#endif

/// What kernels on AMX-BF16 tiles share. A tile is 16 rows of 64 bytes; kernels keep tiles back to back, 1 KiB each.
/// Three layouts occur. "Rows": row m holds 32 bf16 of the contraction (left operand). "Pairs": row p holds elements 2p
/// and 2p + 1 of the contraction side by side, for 16 columns (right operand). Results: 16 x 16 float32.
/// So the pairs of X^T are the rows of X with their 32-bit words transposed.
namespace lockstep::kernels::cpu::amx {

/// The processor has AMX-BF16 and AVX512-BF16, and the kernel lets this process use tiles (asked once). Thread-safe.
bool available();

/// At least `bytes` bytes of this thread's own, aligned to 64: what kernels on tiles work in. One call's results must not
/// be needed after the next call.
void* thread_workspace(size_t bytes);

#if defined(__AMX_BF16__)

// Unnamed: compiled with instructions that not every processor has, so no other file may be linked to this code.
namespace {

constexpr int kTileBytes = 1024;
constexpr int kTileStride = 64;

/// Configures all eight tiles of this thread as 16 rows of 64 bytes, and releases them. oneDNN configures tiles too:
/// every call of a kernel opens its own.
class TileScope {
 public:
  TileScope() {
    struct alignas(64) {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } config;
    _tile_loadconfig(&config);
  }
  ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

/// Transposes a 16 x 16 matrix of 32-bit words held in 16 registers.
inline __attribute__((always_inline)) void transpose_words(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
    r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
    r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
  }
  // r[4 i + j] now holds, in its 128-bit lane c, words 4 i .. 4 i + 3 of column 4 c + j.
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    t[j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88);
    t[4 + j] = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xDD);
    t[8 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88);
    t[12 + j] = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xDD);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    r[j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0x88);
    r[8 + j] = _mm512_shuffle_i32x4(t[j], t[8 + j], 0xDD);
    r[4 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0x88);
    r[12 + j] = _mm512_shuffle_i32x4(t[4 + j], t[12 + j], 0xDD);
  }
}

/// Two rows of 32 bf16 (elements 2p and 2p + 1 of a contraction) to the pairs of columns 0..15 and 16..31.
inline __attribute__((always_inline)) void interleave_pairs(__m512i even, __m512i odd, __m512i& low, __m512i& high) {
  const __m512i a = _mm512_unpacklo_epi16(even, odd);
  const __m512i b = _mm512_unpackhi_epi16(even, odd);
  const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
  const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
  low = _mm512_permutex2var_epi64(a, first, b);
  high = _mm512_permutex2var_epi64(a, second, b);
}

}  // namespace

#endif

}  // namespace lockstep::kernels::cpu::amx
