#include "lockstep/kernels/cpu/amx.h"
#include "lockstep/kernels/cpu/attention_amx.h"

namespace lockstep::kernels::cpu::amx {
namespace {

#include "lockstep/kernels/cpu/attention_tiles.inc"

/// Cells of queries whose operands are laid out together, and of keys in a chunk: what the caches hold, by measurement.
constexpr int64_t kForwardQueries = 4, kForwardKeys = 8;

struct ForwardSpace {
  ForwardSpace(Pieces& pieces, int64_t cells, int64_t width)
      : k_tail(pieces.take<Bf16>(kCell * width)),
        v_columns(pieces.tiles(cells * (width / 16))),
        q_words(pieces.tiles(kForwardQueries * (width / 16))),
        scores(pieces.take<float>(kForwardKeys * kCellFloats)),
        p_pairs(pieces.tiles(kForwardKeys * 2)),
        keep(pieces.take<uint32_t>(kForwardKeys * kCell)),
        top(pieces.take<PerQuery>(kForwardQueries)),
        total(pieces.take<PerQuery>(kForwardQueries)),
        o_blocks(pieces.take<float>(kForwardQueries * kCell * width)) {}
  Bf16* k_tail;
  char *v_columns, *q_words;
  float* scores;    ///< [keys of a chunk][32]
  char* p_pairs;    ///< two tiles per cell
  uint32_t* keep;
  PerQuery *top, *total;  ///< per query cell: the largest exponent so far, and the sum of powers below it
  float* o_blocks;  ///< per query cell, O^T
};

/// Some keys of a chunk against one query cell. The last cell may be the diagonal's, and the document may end in it.
struct Chunk {
  int64_t first, cells;  ///< cells of keys
  int64_t rows;          ///< keys before the end of the document
  int64_t plain_rows;    ///< keys that all 32 queries see
};

Chunk chunk_of(const Part& part, int64_t first, int64_t end, int64_t query_cell) {
  Chunk c{};
  c.first = first;
  c.cells = least(end, part.keys_met(query_cell)) - first;
  c.rows = least(c.cells * kCell, part.length - first * kCell);
  c.plain_rows = part.causal ? least(c.rows, (query_cell - first) * kCell) : c.rows;
  return c;
}

LS_TILE_INLINE PerQuery row_of(const float* scores, int64_t r) {
  return {{_mm512_load_ps(scores + r * kCell), _mm512_load_ps(scores + r * kCell + 16)}};
}

PerQuery largest_of(const float* scores, const Chunk& chunk) {
  const __m512 lowest = _mm512_set1_ps(-__builtin_inff());
  PerQuery a{{lowest, lowest}}, b = a;
  int64_t r = 0;
  for (; r + 2 <= chunk.plain_rows; r += 2) {
    const PerQuery even = row_of(scores, r), odd = row_of(scores, r + 1);
    for (int h = 0; h < 2; ++h) {
      a.half[h] = _mm512_max_ps(even.half[h], a.half[h]);
      b.half[h] = _mm512_max_ps(odd.half[h], b.half[h]);
    }
  }
  for (; r < chunk.rows; ++r) {
    const PerQuery row = row_of(scores, r);
    for (int h = 0; h < 2; ++h) {
      const __mmask16 lanes = diagonal_lanes(r - chunk.plain_rows, h);
      a.half[h] = _mm512_mask_max_ps(a.half[h], lanes, row.half[h], a.half[h]);
    }
  }
  return {{_mm512_max_ps(a.half[0], b.half[0]), _mm512_max_ps(a.half[1], b.half[1])}};
}

/// Turns scores into powers of two below `top`, as pairs; sums them, the dropped ones too.
template <bool kDropout>
class Powers {
 public:
  Powers(const float* scores, const Chunk& chunk, float scale2, const PerQuery& top, const uint32_t* keep, char* pairs)
      : scores_(scores), chunk_(chunk), scale2_(_mm512_set1_ps(scale2)), top_(top), keep_(keep), pairs_(pairs) {}

  PerQuery sum() {
    PerQuery a{}, b{};
    int64_t r = 0;
    for (; r + 2 <= chunk_.plain_rows; r += 2) {
      const __m512i even = row<false>(r, a);
      store(r, even, row<false>(r + 1, b));
    }
    for (; r + 2 <= chunk_.rows; r += 2) {
      const __m512i even = row<true>(r, a);
      store(r, even, row<true>(r + 1, b));
    }
    if (r < chunk_.rows) {
      store(r, row<true>(r, a), _mm512_setzero_si512());
      r += 2;
    }
    for (; r < chunk_.cells * kCell; r += 2) store(r, _mm512_setzero_si512(), _mm512_setzero_si512());
    return {{_mm512_add_ps(a.half[0], b.half[0]), _mm512_add_ps(a.half[1], b.half[1])}};
  }

 private:
  template <bool kMasked>
  LS_TILE_INLINE __m512i row(int64_t r, PerQuery& sum) {
    __m512 p[2];
    for (int h = 0; h < 2; ++h) {
      const __mmask16 lanes = kMasked ? diagonal_lanes(r - chunk_.plain_rows, h) : __mmask16{0xFFFF};
      p[h] = exp2_of(lanes, _mm512_fmsub_ps(_mm512_load_ps(scores_ + r * kCell + 16 * h), scale2_, top_.half[h]));
      sum.half[h] = _mm512_add_ps(sum.half[h], p[h]);
      if (kDropout) p[h] = _mm512_maskz_mov_ps(static_cast<__mmask16>(keep_[r] >> 16 * h), p[h]);
    }
    return to_bf16(p[0], p[1]);
  }
  LS_TILE_INLINE void store(int64_t r, __m512i even, __m512i odd) {
    char* to = pairs_ + r / kCell * (2 * kTileBytes) + r % kCell / 2 * kTileStride;
    _mm512_store_si512(to, _mm512_unpacklo_epi16(even, odd));
    _mm512_store_si512(to + kTileBytes, _mm512_unpackhi_epi16(even, odd));
  }

  const float* scores_;
  const Chunk chunk_;
  __m512 scale2_;
  PerQuery top_;
  const uint32_t* keep_;
  char* pairs_;
};

void rescale(float* blocks, const PerQuery& factor, int64_t width) {
  const PerQuery f = unpacked_order(factor);
  for (int64_t d = 0; d < width; ++d) {
    for (int h = 0; h < 2; ++h) {
      float* at = blocks + d * kCell + 16 * h;
      _mm512_store_ps(at, _mm512_mul_ps(_mm512_load_ps(at), f.half[h]));
    }
  }
}

class ForwardPart {
 public:
  ForwardPart(const AttentionForward& args, const Part& part, const ForwardSpace& space)
      : a_(args), p_(part), s_(space), k_(part.rows(args.k, part.kv, 0), part.length, part.width, space.k_tail) {}

  void run() {
    pack_all_columns(s_.v_columns, p_.rows(a_.v, p_.kv, 0), p_.length, p_.width);
    for (int64_t g = 0; g < p_.groups; ++g) {
      head_ = p_.kv * p_.groups + g;
      if (dropout()) masks_ = head_masks(a_.masks, head_, p_.index);
      for (int64_t first = 0; first < p_.cells; first += kForwardQueries) {
        query_block(first, least(first + kForwardQueries, p_.cells));
      }
    }
  }

 private:
  bool dropout() const { return a_.masks.keys != nullptr; }
  float* o_block(int64_t i) const { return s_.o_blocks + i * kCell * p_.width; }
  char* q_words(int64_t i) const { return s_.q_words + i * (p_.width / 16) * kTileBytes; }

  void query_block(int64_t first, int64_t end) {
    for (int64_t q = first; q < end; ++q) {
      pack_words(q_words(q - first), p_.rows(a_.q, head_, q * kCell), p_.length - q * kCell, p_.width);
    }
    const int64_t keys = p_.keys_met(end - 1);
    for (int64_t k = 0; k < keys; k += kForwardKeys) {
      for (int64_t q = first; q < end; ++q) {
        if (k < p_.keys_met(q)) meet(chunk_of(p_, k, k + kForwardKeys, q), q, q - first);
      }
    }
    for (int64_t q = first; q < end; ++q) finish(q, q - first);
  }

  /// Query cell q, the block's i-th, meets a chunk of keys.
  void meet(const Chunk& chunk, int64_t q, int64_t i) {
    score(chunk, i);
    if (dropout()) draw_rows(s_.keep, masks_, q * kCell, chunk.first * kCell, chunk.rows);
    const bool fresh = chunk.first == 0;
    const PerQuery top = raise_top(chunk, fresh, i);
    const PerQuery sum = dropout() ? Powers<true>(s_.scores, chunk, p_.scale2, top, s_.keep, s_.p_pairs).sum()
                                   : Powers<false>(s_.scores, chunk, p_.scale2, top, s_.keep, s_.p_pairs).sum();
    for (int h = 0; h < 2; ++h) {
      s_.total[i].half[h] = fresh ? sum.half[h] : _mm512_add_ps(s_.total[i].half[h], sum.half[h]);
    }
    add_values(chunk, fresh ? Sum::Fresh : Sum::Continued, o_block(i));
  }

  void score(const Chunk& chunk, int64_t i) {
    const int64_t steps = p_.width / kCell;
    const Panel words{q_words(i), kTileBytes, steps * kTileBytes, kTileStride};
    for (int64_t c = 0; c < chunk.cells; ++c) {
      multiply_cell(s_.scores + c * kCellFloats, Sum::Fresh, k_.at(chunk.first + c), words, steps);
    }
  }

  /// What was summed so far is brought below the new largest exponent.
  PerQuery raise_top(const Chunk& chunk, bool fresh, int64_t i) {
    PerQuery top = largest_of(s_.scores, chunk), factor{};
    for (int h = 0; h < 2; ++h) {
      top.half[h] = _mm512_mul_ps(top.half[h], _mm512_set1_ps(p_.scale2));
      if (fresh) continue;
      top.half[h] = _mm512_max_ps(top.half[h], s_.top[i].half[h]);
      factor.half[h] = exp2_of(0xFFFF, _mm512_sub_ps(s_.top[i].half[h], top.half[h]));
      s_.total[i].half[h] = _mm512_mul_ps(s_.total[i].half[h], factor.half[h]);
    }
    if (!fresh) rescale(o_block(i), factor, p_.width);
    return s_.top[i] = top;
  }

  void add_values(const Chunk& chunk, Sum sum, float* o) {
    const int64_t row_tiles = p_.width / 16;
    const char* columns = s_.v_columns + chunk.first * row_tiles * kTileBytes;
    const Panel pairs{s_.p_pairs, 2 * kTileBytes, kTileBytes, kTileStride};
    for (int64_t j = 0; j < p_.width / kCell; ++j) {
      const Panel v{columns + 2 * j * kTileBytes, row_tiles * kTileBytes, kTileBytes, kTileStride};
      multiply_cell(o + j * kCellFloats, sum, v, pairs, chunk.cells);
    }
  }

  void finish(int64_t q, int64_t i) {
    const int64_t rows = least(kCell, p_.length - q * kCell);
    PerQuery factor{};
    for (int h = 0; h < 2; ++h) {
      const __m512 total = s_.total[i].half[h];
      factor.half[h] = _mm512_div_ps(_mm512_set1_ps(a_.masks.keep_scale), total);
      const __m512 lse = _mm512_mul_ps(_mm512_add_ps(s_.top[i].half[h], log2_of(total)), _mm512_set1_ps(kLn2));
      const int64_t lanes = least(16, rows - 16 * h);
      if (lanes <= 0) continue;
      _mm512_mask_storeu_ps(a_.lse + head_ * a_.stat_stride + p_.start + q * kCell + 16 * h,
                            static_cast<__mmask16>(0xFFFFU >> (16 - lanes)), lse);
    }
    write_queries(o_block(i), unpacked_order(factor), p_.rows(a_.o, head_, q * kCell), a_.o.token_stride, rows,
                  p_.width);
  }

  const AttentionForward& a_;
  const Part& p_;
  const ForwardSpace& s_;
  RowPanels k_;
  int64_t head_ = 0;
  HeadMasks masks_{};
};

}  // namespace

size_t workspace_bytes_forward(const AttentionShape& shape) {
  Pieces pieces(nullptr);
  [[maybe_unused]] const ForwardSpace space(pieces, cells_of(longest(shape)), shape.width);
  return pieces.used();
}

void attention_forward(const AttentionForward& args, void* workspace) {
  Pieces pieces(workspace);
  const ForwardSpace space(pieces, cells_of(longest(args.shape)), args.shape.width);
  each_part(args.shape, [&](const Part& part) { ForwardPart(args, part, space).run(); });
}

}  // namespace lockstep::kernels::cpu::amx
