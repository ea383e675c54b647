#include "lockstep/tensor/token_product_paths.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::tensor::detail {
namespace {

using Element = uint16_t;
constexpr int64_t kBlockElements = 1024;

/// GCC's tile intrinsics do not say which memory they read.
inline void memory_is_written() { asm volatile("" ::: "memory"); }

struct alignas(64) TileConfig {
  uint8_t palette = 0, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

TileConfig whole_tiles() {
  TileConfig config;
  config.palette = 1;
  for (int tile = 0; tile < 8; ++tile) {
    config.row_bytes[tile] = 64;
    config.rows[tile] = 16;
  }
  return config;
}

/// oneDNN, on the same thread, may rely on the tiles it configured: they are given back as they were.
class Mode {
 public:
  Mode() {
    _tile_storeconfig(&before_);
    const TileConfig config = whole_tiles();
    memory_is_written();
    _tile_loadconfig(&config);
  }
  Mode(const Mode&) = delete;
  Mode& operator=(const Mode&) = delete;
  ~Mode() {
    memory_is_written();
    if (before_.palette == 0) {
      _tile_release();
    } else {
      _tile_loadconfig(&before_);
    }
  }

 private:
  TileConfig before_;
};

/// A block is two tiles of 16 rows x 32 tokens, or of 16 pairs of tokens x 16 columns.
constexpr int64_t kTile = 512;

#include "lockstep/tensor/token_product_walk.inc"

inline void load_or_clear(const Block& block) {
  if (block.fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    return;
  }
  const float* lower = block.out + 16 * block.stride;
  _tile_loadd(0, block.out, block.stride * 4);
  _tile_loadd(1, block.out + 16, block.stride * 4);
  _tile_loadd(2, lower, block.stride * 4);
  _tile_loadd(3, lower + 16, block.stride * 4);
}

inline void store(const Block& block) {
  float* lower = block.out + 16 * block.stride;
  _tile_stored(0, block.out, block.stride * 4);
  _tile_stored(1, block.out + 16, block.stride * 4);
  _tile_stored(2, lower, block.stride * 4);
  _tile_stored(3, lower + 16, block.stride * 4);
}

inline void multiply_block(const Block& block) {
  memory_is_written();
  load_or_clear(block);
  for (int64_t group = 0; group < block.groups; ++group) {
    const Element* rows = block.rows + group * kBlockElements;
    const Element* columns = block.columns + group * kBlockElements;
    _tile_loadd(4, rows, 64);
    _tile_loadd(6, columns, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, columns + kTile, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, rows + kTile, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    prefetch_upcoming(block, group);
  }
  store(block);
}

/// Columns [0, 8) of tokens t, t + 8, t + 16 and t + 24, one lane of 128 bits each.
inline __m512i four_tokens(const uint16_t* from, int64_t stride) {
  const auto part = [&](int64_t token) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + token * stride));
  };
  __m512i all = _mm512_castsi128_si512(part(0));
  all = _mm512_inserti32x4(all, part(8), 1);
  all = _mm512_inserti32x4(all, part(16), 2);
  return _mm512_inserti32x4(all, part(24), 3);
}

/// 32 tokens x 8 columns into 8 rows of 32 tokens: an 8 x 8 transpose in each lane.
inline void transpose_8(const uint16_t* from, int64_t stride, uint16_t* to) {
  __m512i in[8], two[8], four[8];
  for (int64_t t = 0; t < 8; ++t) in[t] = four_tokens(from + t * stride, stride);
  for (int i = 0; i < 4; ++i) {
    two[2 * i] = _mm512_unpacklo_epi16(in[2 * i], in[2 * i + 1]);
    two[2 * i + 1] = _mm512_unpackhi_epi16(in[2 * i], in[2 * i + 1]);
  }
  for (int i = 0; i < 2; ++i) {
    for (int half = 0; half < 2; ++half) {
      four[4 * i + 2 * half] = _mm512_unpacklo_epi32(two[4 * i + half], two[4 * i + 2 + half]);
      four[4 * i + 2 * half + 1] = _mm512_unpackhi_epi32(two[4 * i + half], two[4 * i + 2 + half]);
    }
  }
  for (int pair = 0; pair < 4; ++pair) {
    _mm512_store_si512(to + 64 * pair, _mm512_unpacklo_epi64(four[pair], four[pair + 4]));
    _mm512_store_si512(to + 64 * pair + 32, _mm512_unpackhi_epi64(four[pair], four[pair + 4]));
  }
}

void pack_dy(const ProductSlice& dy, void* packed) {
  pack_slice(dy, packed, [](const uint16_t* from, int64_t stride, Element* to) {
    for (int64_t row = 0; row < kProductBlock; row += 8) transpose_8(from + row, stride, to + row * kProductBlock);
  });
}

/// 16 columns of tokens t and t + 1, side by side.
inline __m512i interleave_16(const uint16_t* from, int64_t stride, __m512i order) {
  const auto row = [&](const uint16_t* at) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)); };
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(row(from)), row(from + stride), 1);
  return _mm512_permutexvar_epi16(order, both);
}

void pack_x(const ProductSlice& x, void* packed) {
  alignas(64) uint16_t index[32];
  for (uint16_t i = 0; i < 32; ++i) index[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
  const __m512i order = _mm512_load_si512(index);
  pack_slice(x, packed, [&](const uint16_t* from, int64_t stride, Element* to) {
    for (int64_t pair = 0; pair < kProductBlock / 2; ++pair, from += 2 * stride, to += 32) {
      _mm512_store_si512(to, interleave_16(from, stride, order));
      _mm512_store_si512(to + kTile, interleave_16(from + 16, stride, order));
    }
  });
}

}  // namespace

const ProductKernel kProductAmx = {.block_bytes = kBlockElements * sizeof(Element),
                                   .pack_rows = pack_dy,
                                   .pack_columns = pack_x,
                                   .multiply = multiply_band};

bool amx_granted() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  static const bool granted = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return granted;
}

}  // namespace lockstep::tensor::detail
