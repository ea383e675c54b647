#include "lockstep/kernels/cpu/linear_amx.h"

#include "lockstep/kernels/cpu/amx.h"

// The walk: rows of x are packed once, as many as the second cache holds; then come the blocks of 32 columns of w, in
// slabs of the contraction that fit the first cache, each packed just before it is used; for each slab the blocks of 32
// rows. The sums of a block of 32 x 32 stay in four tile registers over a slab, and between slabs in memory, unrounded:
// where the cuts are cannot be seen.
namespace lockstep::kernels::cpu::amx {
namespace {

using Bf16 = uint16_t;
constexpr int64_t kBlock = 32;
constexpr int64_t kBlockBytes = 2 * kTileBytes;  ///< 32 x 32 bf16
constexpr int64_t kBlockFloats = kBlock * kBlock;
/// 32 elements of the contraction are a group. A slab of w and of a block of x, 20 KiB each, are what the first cache holds.
constexpr int64_t kSlabGroups = 10;
constexpr int64_t kResidentGroups = 64;                ///< a longer contraction is packed in parts of a slab
constexpr int64_t kResidentBytes = 5 * (1 << 20) / 4;  ///< of packed rows (and sums) in the second cache
constexpr int64_t kLeastRows = 128;                    ///< packing w is worth it for
constexpr int64_t kStreamBytes = 2 << 20;              ///< results that the second cache would not keep

int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
int64_t most(int64_t a, int64_t b) { return a < b ? b : a; }
int64_t parts_of(int64_t count, int64_t part) { return (count + part - 1) / part; }
/// The size of parts of at most `part`, as even as can be.
int64_t even_part(int64_t count, int64_t part) { return count == 0 ? 0 : parts_of(count, parts_of(count, part)); }

/// How a product is cut. No cut can be seen in the bits.
struct Cuts {
  explicit Cuts(const LinearProduct& p)
      : groups(p.inner / kBlock),
        column_blocks(p.columns / kBlock),
        packed_groups(groups <= kResidentGroups ? groups : even_part(groups, kSlabGroups)),
        slab_groups(even_part(packed_groups, kSlabGroups)) {
    const int64_t block_bytes = packed_groups * kBlockBytes + (whole() ? 1 : column_blocks) * kBlockFloats * 4;
    const int64_t blocks = most(kLeastRows / kBlock, kResidentBytes / block_bytes);
    row_blocks = even_part(parts_of(p.rows, kBlock), blocks);
  }
  bool whole() const { return packed_groups == groups; }

  int64_t groups, column_blocks;
  int64_t packed_groups;  ///< of x, packed together
  int64_t slab_groups;
  int64_t row_blocks;  ///< packed together
};

/// Hands out pieces of the workspace; with a null base it only counts.
struct Space {
  Space(void* base, const Cuts& cuts) : base_(reinterpret_cast<uintptr_t>(base)) {
    x = take<char>(cuts.row_blocks * cuts.packed_groups * kBlockBytes);
    w = take<char>(cuts.slab_groups * kBlockBytes);
    sums = take<float>(cuts.row_blocks * (cuts.whole() ? 1 : cuts.column_blocks) * kBlockFloats);
  }
  size_t bytes() const { return used_; }

  char *x, *w;  ///< packed: groups of all blocks of rows, and a slab of one block of columns
  float* sums;  ///< 32 x 32 each: of all blocks of rows, with one block of columns or, if not whole, with all

 private:
  template <class T>
  T* take(int64_t count) {
    T* piece = reinterpret_cast<T*>(base_ + used_);
    used_ += static_cast<size_t>(count) * sizeof(T);
    return piece;
  }
  uintptr_t base_;
  size_t used_ = 0;
};

/// Rows [0, 32) of a slab of x, the missing ones zero: two tiles per group.
void pack_rows(const Bf16* x, int64_t stride, int64_t rows, int64_t groups, char* to) {
  for (int64_t r = 0; r < kBlock; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      const __m512i part = r < rows ? _mm512_loadu_si512(x + r * stride + g * kBlock) : _mm512_setzero_si512();
      _mm512_store_si512(to + g * kBlockBytes + r * kTileStride, part);
    }
  }
}

/// A slab of 32 columns of w, as pairs: two tiles per group. `w` points at the slab's first element of the first column.
struct WeightBlock {
  const Bf16* w;
  int64_t stride;
  WeightLayout layout;

  /// Line `line` (of 32) of group g: 32 elements that lie together.
  const Bf16* line(int64_t g, int64_t line) const {
    return layout == WeightLayout::ColumnsFirst ? w + line * stride + g * kBlock : w + (g * kBlock + line) * stride;
  }

  void pack(int64_t groups, char* to) const {
    for (int64_t g = 0; g < groups; ++g, to += kBlockBytes) {
      if (layout == WeightLayout::ColumnsFirst) {
        pack_transposed(g, to);
      } else {
        pack_pairs(g, to);
      }
    }
  }

 private:
  /// 16 columns at a time: 4 words of columns j, j + 4, j + 8 and j + 12 fill a register as they are loaded, so that two
  /// steps in its four lanes are all of the transposition.
  void pack_transposed(int64_t g, char* to) const {
    for (int64_t half = 0; half < 2; ++half) {
#pragma GCC unroll 4
      for (int64_t quarter = 0; quarter < 4; ++quarter) {
        const auto words = [&](int64_t column) {
          return _mm_loadu_si128(reinterpret_cast<const __m128i*>(line(g, 16 * half + column) + 8 * quarter));
        };
        const auto four = [&](int64_t j) {
          __m512i all = _mm512_castsi128_si512(words(j));
          all = _mm512_mask_broadcast_i32x4(all, 0x00F0, words(j + 4));
          all = _mm512_mask_broadcast_i32x4(all, 0x0F00, words(j + 8));
          return _mm512_mask_broadcast_i32x4(all, 0xF000, words(j + 12));
        };
        const __m512i a = four(0), b = four(1), c = four(2), d = four(3);
        const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
        const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
        char* const out = to + half * kTileBytes + 4 * quarter * kTileStride;
        _mm512_store_si512(out, _mm512_unpacklo_epi64(ab_low, cd_low));
        _mm512_store_si512(out + kTileStride, _mm512_unpackhi_epi64(ab_low, cd_low));
        _mm512_store_si512(out + 2 * kTileStride, _mm512_unpacklo_epi64(ab_high, cd_high));
        _mm512_store_si512(out + 3 * kTileStride, _mm512_unpackhi_epi64(ab_high, cd_high));
      }
    }
  }
  void pack_pairs(int64_t g, char* to) const {
    for (int64_t p = 0; p < 16; ++p) {
      __m512i low, high;
      interleave_pairs(_mm512_loadu_si512(line(g, 2 * p)), _mm512_loadu_si512(line(g, 2 * p + 1)), low, high);
      _mm512_store_si512(to + p * kTileStride, low);
      _mm512_store_si512(to + kTileBytes + p * kTileStride, high);
    }
  }
};

/// The part of the next block of columns that one product of blocks brings near while it multiplies.
struct Upcoming {
  WeightBlock block;
  int64_t first, count;  ///< lines of every group
};

/// c[32][32] = a * b (`fresh`) or c + a * b. The compiler does not see that tile loads read memory: hence the barriers.
void multiply(float* c, bool fresh, const char* a, const char* b, int64_t groups, const Upcoming& upcoming) {
  constexpr int64_t kRow = kBlock * int64_t{sizeof(float)};
  float* const lower = c + kBlockFloats / 2;
  __asm__ volatile("" ::: "memory");
  if (fresh) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, c, kRow);
    _tile_loadd(1, c + 16, kRow);
    _tile_loadd(2, lower, kRow);
    _tile_loadd(3, lower + 16, kRow);
  }
  for (int64_t g = 0; g < groups; ++g, a += kBlockBytes, b += kBlockBytes) {
    _tile_loadd(4, a, kTileStride);
    _tile_loadd(6, b, kTileStride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileBytes, kTileStride);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTileBytes, kTileStride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    for (int64_t i = 0; i < upcoming.count; ++i) __builtin_prefetch(upcoming.block.line(g, upcoming.first + i), 0, 2);
  }
  _tile_stored(0, c, kRow);
  _tile_stored(1, c + 16, kRow);
  _tile_stored(2, lower, kRow);
  _tile_stored(3, lower + 16, kRow);
  __asm__ volatile("" ::: "memory");
}

/// The bias of a block of columns as bf16 has it.
struct Bias {
  explicit Bias(const float* bias) : given(bias != nullptr) {
    if (!given) return;
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(bias + 16), _mm512_loadu_ps(bias));
    low = widened(_mm512_castsi512_si256(both));
    high = widened(_mm512_extracti64x4_epi64(both, 1));
  }
  static __m512 widened(__m256i bf16) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16)); }
  bool given;
  __m512 low{}, high{};
};

/// Past the caches if `stream`: a line is written whole, and need not be read first.
void write(const float* c, const Bias& bias, Bf16* y, int64_t stride, int64_t rows, bool stream) {
  for (int64_t i = 0; i < rows * kBlock; i += kBlock, y += stride) {
    __m512 low = _mm512_load_ps(c + i), high = _mm512_load_ps(c + i + 16);
    if (bias.given) {
      low = _mm512_add_ps(low, bias.low);
      high = _mm512_add_ps(high, bias.high);
    }
    const __m512i rounded = (__m512i)_mm512_cvtne2ps_pbh(high, low);
    if (stream) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(y), rounded);
    } else {
      _mm512_storeu_si512(y, rounded);
    }
  }
}

/// The product of the rows that are packed together.
class RowsProduct {
 public:
  RowsProduct(const LinearProduct& product, const Cuts& cuts, const Space& space)
      : p_(product),
        cuts_(cuts),
        s_(space),
        row_blocks_(parts_of(product.rows, kBlock)),
        stream_(2 * product.rows * product.columns >= kStreamBytes &&
                reinterpret_cast<uintptr_t>(product.y_RC) % kTileStride == 0) {}

  void run() {
    for (int64_t first = 0; first < cuts_.groups; first += cuts_.packed_groups) {
      packed_ = least(cuts_.packed_groups, cuts_.groups - first);
      for (int64_t r = 0; r < row_blocks_; ++r) {
        pack_rows(p_.x_RK + r * kBlock * p_.inner + first * kBlock, p_.inner, p_.rows - r * kBlock, packed_,
                  s_.x + r * packed_ * kBlockBytes);
      }
      for (int64_t c = 0; c < cuts_.column_blocks; ++c) {
        for (int64_t slab = 0; slab < packed_; slab += cuts_.slab_groups) meet_rows(c, first, slab);
      }
    }
  }

 private:
  WeightBlock weights(int64_t column_block, int64_t first_group) const {
    if (p_.layout == WeightLayout::ColumnsFirst) {
      return {p_.w + column_block * kBlock * p_.inner + first_group * kBlock, p_.inner, p_.layout};
    }
    return {p_.w + first_group * kBlock * p_.columns + column_block * kBlock, p_.columns, p_.layout};
  }

  /// What comes after slab `slab` of column block c, as far as it belongs to the packed groups.
  WeightBlock next_weights(int64_t c, int64_t first, int64_t slab, bool& more) const {
    const bool same_columns = slab + cuts_.slab_groups < packed_;
    more = same_columns || c + 1 < cuts_.column_blocks;
    if (same_columns) return weights(c, first + slab + cuts_.slab_groups);
    return weights(more ? c + 1 : c, first);
  }

  /// Slab `slab` of the packed groups, which begin with `first`.
  void meet_rows(int64_t c, int64_t first, int64_t slab) {
    const int64_t groups = least(cuts_.slab_groups, packed_ - slab);
    const bool fresh = first + slab == 0, last = first + slab + groups == cuts_.groups;
    const Bias bias(p_.bias_C != nullptr && last ? p_.bias_C + c * kBlock : nullptr);
    bool more = false;
    const WeightBlock next = next_weights(c, first, slab, more);
    const int64_t lines = more ? parts_of(kBlock, row_blocks_) : 0;
    weights(c, first + slab).pack(groups, s_.w);
    float* sums = s_.sums + (cuts_.whole() ? 0 : c * row_blocks_ * kBlockFloats);
    for (int64_t r = 0; r < row_blocks_; ++r, sums += kBlockFloats) {
      const int64_t from = least(r * lines, kBlock);
      multiply(sums, fresh, s_.x + (r * packed_ + slab) * kBlockBytes, s_.w, groups,
               {next, from, least(lines, kBlock - from)});
      // One block late, since a tile is stored long after its product was asked for.
      if (last && r > 0) write(sums - kBlockFloats, bias, c, r - 1);
    }
    if (last) write(sums - kBlockFloats, bias, c, row_blocks_ - 1);
  }

  void write(const float* sums, const Bias& bias, int64_t c, int64_t r) const {
    Bf16* y = p_.y_RC + r * kBlock * p_.columns + c * kBlock;
    amx::write(sums, bias, y, p_.columns, least(kBlock, p_.rows - r * kBlock), stream_);
  }

  const LinearProduct& p_;
  const Cuts& cuts_;
  const Space& s_;
  int64_t row_blocks_, packed_ = 0;
  bool stream_;

};

}  // namespace

bool linear_fits(int64_t inner, int64_t columns) { return inner > 0 && inner % kBlock == 0 && columns % kBlock == 0; }

size_t workspace_bytes_linear(const LinearProduct& product) { return Space(nullptr, Cuts(product)).bytes(); }

void linear_product(const LinearProduct& product, void* workspace) {
  const Cuts cuts(product);
  const Space space(workspace, cuts);
  const TileScope tiles;
  const int64_t rows_together = cuts.row_blocks * kBlock;
  for (int64_t row = 0; row < product.rows; row += rows_together) {
    LinearProduct part = product;
    part.rows = least(rows_together, product.rows - row);
    part.x_RK += row * product.inner;
    part.y_RC += row * product.columns;
    RowsProduct(part, cuts, space).run();
  }
  _mm_sfence();  // other threads may read what was streamed
}

}  // namespace lockstep::kernels::cpu::amx
