#include "lockstep/kernels/cpu/linear_amx.h"

#include "lockstep/kernels/cpu/amx.h"

// The walk: slabs of the contraction, so that a block of 32 columns of w fits the first cache; in a slab the blocks of
// columns, each packed just before it is used; for each the blocks of 32 rows of x, which were packed once and lie in the
// second cache. Sums of a block of 32 x 32 stay in four tile registers over a slab; the sums of slabs before the last wait
// in float32.
namespace lockstep::kernels::cpu::amx {
namespace {

using Bf16 = uint16_t;
constexpr int64_t kBlock = 32;
constexpr int64_t kBlockBytes = 2 * kTileBytes;  ///< 32 x 32 bf16
constexpr int64_t kBlockFloats = kBlock * kBlock;
constexpr int64_t kSlabGroups = 12;  ///< 24 KiB of w; part of the definition of the bits
constexpr int64_t kMostRows = 256;   ///< packed and summed together

int64_t blocks_of(int64_t count) { return (count + kBlock - 1) / kBlock; }
int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

/// Groups of 32 elements of the contraction per slab, as even as can be.
int64_t groups_per_slab(int64_t groups) {
  const int64_t slabs = (groups + kSlabGroups - 1) / kSlabGroups;
  return (groups + slabs - 1) / slabs;
}

/// Hands out pieces of the workspace; with a null base it only counts.
struct Space {
  Space(void* base, const LinearProduct& p) : base_(reinterpret_cast<uintptr_t>(base)) {
    const int64_t groups = p.inner / kBlock, slab = groups_per_slab(groups), rows = blocks_of(least(p.rows, kMostRows));
    x = take<char>(rows * slab * kBlockBytes);
    w = take<char>(slab * kBlockBytes);
    cell = take<float>(kBlockFloats);
    sums = take<float>(slab < groups ? rows * (p.columns / kBlock) * kBlockFloats : 0);
  }
  size_t bytes() const { return used_; }

  char *x, *w;         ///< packed: a slab of all blocks of rows, and of one block of columns
  float *cell, *sums;  ///< 32 x 32 results; all of them between slabs

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
  void pack_transposed(int64_t g, char* to) const {
    for (int64_t half = 0; half < 2; ++half) {
      __m512i words[16];
#pragma GCC unroll 16
      for (int64_t i = 0; i < 16; ++i) words[i] = _mm512_loadu_si512(line(g, 16 * half + i));
      transpose_words(words);
#pragma GCC unroll 16
      for (int64_t i = 0; i < 16; ++i) _mm512_store_si512(to + half * kTileBytes + i * kTileStride, words[i]);
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

/// c[32][32] = a * b. The compiler does not see that tile loads read memory: hence the barriers.
void multiply(float* c, const char* a, const char* b, int64_t groups, const Upcoming& upcoming) {
  constexpr int64_t kRow = kBlock * int64_t{sizeof(float)};
  float* const lower = c + kBlockFloats / 2;
  __asm__ volatile("" ::: "memory");
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
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

void add_slab(float* sums, const float* c) {
  for (int64_t i = 0; i < kBlockFloats; i += 16) {
    _mm512_store_ps(sums + i, _mm512_add_ps(_mm512_load_ps(sums + i), _mm512_load_ps(c + i)));
  }
}

/// `sums`: of the slabs before, null: none.
void write(const float* sums, const float* c, const Bias& bias, Bf16* y, int64_t stride, int64_t rows) {
  for (int64_t i = 0; i < rows * kBlock; i += kBlock, y += stride) {
    __m512 low = _mm512_load_ps(c + i), high = _mm512_load_ps(c + i + 16);
    if (sums != nullptr) {
      low = _mm512_add_ps(_mm512_load_ps(sums + i), low);
      high = _mm512_add_ps(_mm512_load_ps(sums + i + 16), high);
    }
    if (bias.given) {
      low = _mm512_add_ps(low, bias.low);
      high = _mm512_add_ps(high, bias.high);
    }
    _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

/// At most kMostRows rows.
class RowsProduct {
 public:
  RowsProduct(const LinearProduct& product, const Space& space)
      : p_(product),
        s_(space),
        row_blocks_(blocks_of(product.rows)),
        column_blocks_(product.columns / kBlock),
        groups_(product.inner / kBlock),
        slab_(groups_per_slab(groups_)) {}

  void run() {
    for (int64_t first = 0; first < groups_; first += slab_) slab(first, least(slab_, groups_ - first));
  }

 private:
  WeightBlock weights(int64_t column_block, int64_t first_group) const {
    if (p_.layout == WeightLayout::ColumnsFirst) {
      return {p_.w + column_block * kBlock * p_.inner + first_group * kBlock, p_.inner, p_.layout};
    }
    return {p_.w + first_group * kBlock * p_.columns + column_block * kBlock, p_.columns, p_.layout};
  }

  void slab(int64_t first_group, int64_t groups) {
    const int64_t block_bytes = groups * kBlockBytes;
    for (int64_t r = 0; r < row_blocks_; ++r) {
      pack_rows(p_.x_RK + r * kBlock * p_.inner + first_group * kBlock, p_.inner, p_.rows - r * kBlock, groups,
                s_.x + r * block_bytes);
    }
    for (int64_t c = 0; c < column_blocks_; ++c) {
      weights(c, first_group).pack(groups, s_.w);
      meet_rows(c, first_group, groups);
    }
  }

  void meet_rows(int64_t c, int64_t first_group, int64_t groups) {
    const bool first = first_group == 0, last = first_group + groups == groups_;
    const Bias bias(p_.bias_C != nullptr && last ? p_.bias_C + c * kBlock : nullptr);
    const bool more = c + 1 < column_blocks_;
    const WeightBlock next = weights(more ? c + 1 : c, first_group);
    const int64_t lines = more ? (kBlock + row_blocks_ - 1) / row_blocks_ : 0;
    for (int64_t r = 0; r < row_blocks_; ++r) {
      float* sums = s_.sums + (c * row_blocks_ + r) * kBlockFloats;
      const int64_t from = least(r * lines, kBlock);
      multiply(first && !last ? sums : s_.cell, s_.x + r * groups * kBlockBytes, s_.w, groups,
               {next, from, least(lines, kBlock - from)});
      if (!first && !last) add_slab(sums, s_.cell);
      if (!last) continue;
      write(first ? nullptr : sums, s_.cell, bias, p_.y_RC + r * kBlock * p_.columns + c * kBlock, p_.columns,
            least(kBlock, p_.rows - r * kBlock));
    }
  }

  const LinearProduct& p_;
  const Space& s_;
  int64_t row_blocks_, column_blocks_, groups_, slab_;
};

}  // namespace

bool linear_fits(int64_t inner, int64_t columns) { return inner > 0 && inner % kBlock == 0 && columns % kBlock == 0; }

size_t workspace_bytes_linear(const LinearProduct& product) { return Space(nullptr, product).bytes(); }

void linear_product(const LinearProduct& product, void* workspace) {
  const Space space(workspace, product);
  const TileScope tiles;
  for (int64_t row = 0; row < product.rows; row += kMostRows) {
    LinearProduct part = product;
    part.rows = least(kMostRows, product.rows - row);
    part.x_RK += row * product.inner;
    part.y_RC += row * product.columns;
    RowsProduct(part, space).run();
  }
}

}  // namespace lockstep::kernels::cpu::amx
