#include "lockstep/kernels/cpu/amx.h"
#include "lockstep/kernels/cpu/attention_amx.h"

namespace lockstep::kernels::cpu::amx {
namespace {

#include "lockstep/kernels/cpu/attention_tiles.inc"

/// Cells of queries whose operands are laid out together, and of keys in a chunk: what the caches hold, by measurement.
constexpr int64_t kBackwardQueries = 4, kBackwardKeys = 8;

struct BackwardSpace {
  BackwardSpace(Pieces& pieces, int64_t cells, int64_t width, int64_t groups)
      : k_tail(pieces.take<Bf16>(kCell * width)),
        v_tail(pieces.take<Bf16>(kCell * width)),
        k_columns(pieces.tiles(cells * (width / 16))),
        q_words(pieces.tiles(kBackwardQueries * (width / 16))),
        d_o_words(pieces.tiles(kBackwardQueries * (width / 16))),
        q_pairs(pieces.tiles(kBackwardQueries * (width / 16))),
        d_o_pairs(pieces.tiles(kBackwardQueries * (width / 16))),
        s(pieces.take<float>(kCellFloats)),
        dp(pieces.take<float>(kCellFloats)),
        keep(pieces.take<uint32_t>(kCell)),
        lse2(pieces.take<PerQuery>(kBackwardQueries)),
        delta(pieces.take<PerQuery>(kBackwardQueries)),
        p_rows(pieces.tiles(kBackwardKeys * kBackwardQueries * 2)),
        ds_rows(pieces.tiles(kBackwardKeys * kBackwardQueries * 2)),
        ds_pairs(pieces.tiles(kBackwardKeys * kBackwardQueries * 2)),
        dk_blocks(pieces.take<float>(least(kBackwardKeys, cells) * kCell * width)),
        dv_blocks(pieces.take<float>(least(kBackwardKeys, cells) * kCell * width)),
        dq_blocks(pieces.take<float>(groups * cells * kCell * width)) {}
  Bf16 *k_tail, *v_tail;
  char* k_columns;
  char *q_words, *d_o_words, *q_pairs, *d_o_pairs;  ///< of a block of query cells
  float *s, *dp;                                    ///< one cell
  uint32_t* keep;
  PerQuery *lse2, *delta;             ///< per query cell: log-sum-exp as an exponent of two; delta / keep_scale
  char *p_rows, *ds_rows, *ds_pairs;  ///< two tiles per (key cell of the chunk, query cell of the block)
  float *dk_blocks, *dv_blocks;       ///< per key cell of the chunk
  float* dq_blocks;                   ///< per query head of the group and query cell, dQ^T
};

/// The tiles of one cell.
struct CellTiles {
  char *p_rows, *ds_rows, *ds_pairs;
};

/// P from the scores and the log-sum-exp, dS = P (dP - delta); keep_scale and scale are left to whoever writes results.
template <bool kDropout>
class CellGradient {
 public:
  CellGradient(const BackwardSpace& space, int64_t i, float scale2, int64_t rows, bool diagonal, const CellTiles& tiles)
      : s_(space), rows_(rows), diagonal_(diagonal), tiles_(tiles), scale2_(_mm512_set1_ps(scale2)),
        lse2_(space.lse2[i]), delta_(space.delta[i]) {}

  void run() {
    int64_t r = 0;
    if (!diagonal_) {
      for (; r + 2 <= rows_; r += 2) {
        const __m512i even = row<false>(r);
        store_pairs(r, even, row<false>(r + 1));
      }
    }
    for (; r + 2 <= rows_; r += 2) {
      const __m512i even = row<true>(r);
      store_pairs(r, even, row<true>(r + 1));
    }
    for (; r < kCell; r += 2) {
      store_pairs(r, r < rows_ ? row<true>(r) : empty_row(r), empty_row(r + 1));
    }
  }

 private:
  template <bool kMasked>
  LS_TILE_INLINE __m512i row(int64_t r) {
    __m512 p[2], ds[2];
    for (int h = 0; h < 2; ++h) {
      const int64_t at = r * kCell + 16 * h;
      const __mmask16 lanes = kMasked && diagonal_ ? diagonal_lanes(r, h) : __mmask16{0xFFFF};
      p[h] = exp2_of(lanes, _mm512_fmsub_ps(_mm512_load_ps(s_.s + at), scale2_, lse2_.half[h]));
      const __m512 dp = _mm512_load_ps(s_.dp + at);
      if (kDropout) {
        const auto kept_lanes = static_cast<__mmask16>(s_.keep[r] >> 16 * h);
        ds[h] = _mm512_mul_ps(p[h], _mm512_sub_ps(_mm512_maskz_mov_ps(kept_lanes, dp), delta_.half[h]));
        p[h] = _mm512_maskz_mov_ps(kept_lanes, p[h]);
      } else {
        ds[h] = _mm512_mul_ps(p[h], _mm512_sub_ps(dp, delta_.half[h]));
      }
    }
    return store_row(r, to_bf16(p[0], p[1]), to_bf16(ds[0], ds[1]));
  }
  LS_TILE_INLINE __m512i store_row(int64_t r, __m512i p, __m512i ds) {
    _mm512_store_si512(tiles_.p_rows + r * kTileStride, p);
    _mm512_store_si512(tiles_.ds_rows + r * kTileStride, ds);
    return ds;
  }
  LS_TILE_INLINE __m512i empty_row(int64_t r) { return store_row(r, _mm512_setzero_si512(), _mm512_setzero_si512()); }
  LS_TILE_INLINE void store_pairs(int64_t r, __m512i even, __m512i odd) {
    char* to = tiles_.ds_pairs + r / 2 * kTileStride;
    _mm512_store_si512(to, _mm512_unpacklo_epi16(even, odd));
    _mm512_store_si512(to + kTileBytes, _mm512_unpackhi_epi16(even, odd));
  }

  const BackwardSpace& s_;
  int64_t rows_;
  bool diagonal_;
  CellTiles tiles_;
  __m512 scale2_;
  PerQuery lse2_, delta_;
};

/// Sum over width of a * b for 16 rows from `first` on, a row to a lane.
__m512 row_dots(const HeadRows& a, const HeadRows& b, int64_t first, int64_t rows, int64_t width) {
  __m512 sum[2] = {};
  for (int64_t j = 0; j < width / kCell; ++j) {
    __m512i x[16], y[16];
    load_words(x, a, first, rows, j);
    load_words(y, b, first, rows, j);
#pragma GCC unroll 16
    for (int p = 0; p < 16; ++p) sum[p % 2] = _mm512_dpbf16_ps(sum[p % 2], (__m512bh)x[p], (__m512bh)y[p]);
  }
  return _mm512_add_ps(sum[0], sum[1]);
}

class BackwardPart {
 public:
  BackwardPart(const AttentionBackward& args, const Part& part, const BackwardSpace& space)
      : a_(args),
        p_(part),
        s_(space),
        steps_(part.width / kCell),
        row_tiles_(part.width / 16),
        k_(part.rows(args.k, part.kv, 0), part.length, part.width, space.k_tail),
        v_(part.rows(args.v, part.kv, 0), part.length, part.width, space.v_tail) {}

  void run() {
    pack_all_columns(s_.k_columns, p_.rows(a_.k, p_.kv, 0), p_.length, p_.width);
    for (int64_t k = 0; k < p_.cells; k += kBackwardKeys) {
      key_chunk(k, least(k + kBackwardKeys, p_.cells));
    }
  }

 private:
  bool dropout() const { return a_.masks.keys != nullptr; }
  float result_scale() const { return static_cast<float>(a_.shape.scale) * a_.masks.keep_scale; }
  int64_t block_floats() const { return kCell * p_.width; }
  int64_t block_bytes() const { return row_tiles_ * kTileBytes; }
  float* dq_block(int64_t q) const { return s_.dq_blocks + (group_ * p_.cells + q) * block_floats(); }
  CellTiles tiles_of(int64_t k, int64_t q) const {
    const int64_t at = ((k - first_key_) * kBackwardQueries + q - first_query_) * 2 * kTileBytes;
    return {s_.p_rows + at, s_.ds_rows + at, s_.ds_pairs + at};
  }

  void key_chunk(int64_t first, int64_t end) {
    first_key_ = first;
    end_key_ = end;
    for (group_ = 0; group_ < p_.groups; ++group_) {
      head_ = p_.kv * p_.groups + group_;
      if (dropout()) masks_ = head_masks(a_.masks, head_, p_.index);
      // A causal chunk of keys is first met by the block of queries that holds its first one.
      const int64_t from = p_.causal ? first / kBackwardQueries * kBackwardQueries : 0;
      for (int64_t q = from; q < p_.cells; q += kBackwardQueries) {
        query_block(q, least(q + kBackwardQueries, p_.cells));
      }
    }
    for (int64_t k = first; k < end; ++k) write_key_gradients(k);
  }

  void query_block(int64_t first, int64_t end) {
    first_query_ = first;
    end_query_ = end;
    for (int64_t q = first; q < end; ++q) pack_query(q, q - first);
    for (int64_t k = first_key_; k < end_key_; ++k) {
      for (int64_t q = first_seeing(k); q < end; ++q) differentiate(k, q);
    }
    for (int64_t k = first_key_; k < end_key_; ++k) add_key_gradients(k);
    for (int64_t q = first; q < end; ++q) add_query_gradient(q);
  }

  /// First query cell of the block that sees key cell k; may lie past its end.
  int64_t first_seeing(int64_t k) const { return p_.causal && k > first_query_ ? k : first_query_; }

  void pack_query(int64_t q, int64_t i) {
    const int64_t rows = p_.length - q * kCell;
    const HeadRows query = p_.rows(a_.q, head_, q * kCell), d_o = p_.rows(a_.d_o, head_, q * kCell);
    pack_words(s_.q_words + i * block_bytes(), query, rows, p_.width);
    pack_pairs(s_.q_pairs + i * block_bytes(), query, rows, p_.width);
    pack_words(s_.d_o_words + i * block_bytes(), d_o, rows, p_.width);
    pack_pairs(s_.d_o_pairs + i * block_bytes(), d_o, rows, p_.width);
    statistics(q, i);
  }

  /// Queries past the document get 0: their P is 1, and their rows of dO and dS are 0.
  void statistics(int64_t q, int64_t i) {
    const int64_t rows = p_.length - q * kCell;
    const float* lse = a_.lse + head_ * a_.stat_stride + p_.start + q * kCell;
    const __m512 to_exponent = _mm512_set1_ps(kLog2E), undo_keep = _mm512_set1_ps(1 / a_.masks.keep_scale);
    for (int h = 0; h < 2; ++h) {
      const int64_t count = least(16, rows - 16 * h);
      const auto lanes = static_cast<__mmask16>(count <= 0 ? 0 : 0xFFFFU >> (16 - count));
      s_.lse2[i].half[h] = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, lse + 16 * h), to_exponent);
      const __m512 delta = row_dots(p_.rows(a_.d_o, head_, q * kCell), p_.rows(a_.o, head_, q * kCell), 16 * h, rows,
                                    p_.width);
      s_.delta[i].half[h] = _mm512_mul_ps(delta, undo_keep);
    }
  }

  void differentiate(int64_t k, int64_t q) {
    const int64_t i = q - first_query_;
    const int64_t other = steps_ * kTileBytes;
    multiply_cell(s_.s, Sum::Fresh, k_.at(k), {s_.q_words + i * block_bytes(), kTileBytes, other, kTileStride}, steps_);
    multiply_cell(s_.dp, Sum::Fresh, v_.at(k), {s_.d_o_words + i * block_bytes(), kTileBytes, other, kTileStride},
                  steps_);
    const int64_t rows = least(kCell, p_.length - k * kCell);
    const bool diagonal = p_.causal && k == q;
    if (dropout()) {
      draw_rows(s_.keep, masks_, q * kCell, k * kCell, rows);
      CellGradient<true>(s_, i, p_.scale2, rows, diagonal, tiles_of(k, q)).run();
    } else {
      CellGradient<false>(s_, i, p_.scale2, rows, diagonal, tiles_of(k, q)).run();
    }
  }

  /// dV += P^T dO and dK += dS^T Q for one key cell and the block's queries.
  void add_key_gradients(int64_t k) {
    const int64_t q = first_seeing(k), count = end_query_ - q;
    if (count <= 0) return;
    // The first queries to meet a key: its own cell if causal, else the document's first.
    const bool first = group_ == 0 && q == (p_.causal ? k : 0);
    const Sum sum = first ? Sum::Fresh : Sum::Continued;
    const CellTiles tiles = tiles_of(k, q);
    const int64_t packed = (q - first_query_) * block_bytes();
    for (int64_t j = 0; j < steps_; ++j) {
      const int64_t c = (k - first_key_) * block_floats() + j * kCellFloats;
      const int64_t columns = packed + 2 * j * kTileBytes;
      multiply_cell(s_.dv_blocks + c, sum, {tiles.p_rows, 2 * kTileBytes, kTileBytes, kTileStride},
                    {s_.d_o_pairs + columns, block_bytes(), kTileBytes, kTileStride}, count);
      multiply_cell(s_.dk_blocks + c, sum, {tiles.ds_rows, 2 * kTileBytes, kTileBytes, kTileStride},
                    {s_.q_pairs + columns, block_bytes(), kTileBytes, kTileStride}, count);
    }
  }

  /// dQ^T += K^T dS^T for one query cell and the chunk's keys; written after the last of them.
  void add_query_gradient(int64_t q) {
    const int64_t end = least(end_key_, p_.keys_met(q)), count = end - first_key_;
    if (count <= 0) return;
    const Sum sum = first_key_ == 0 ? Sum::Fresh : Sum::Continued;
    const char* columns = s_.k_columns + first_key_ * block_bytes();
    const Panel pairs{tiles_of(first_key_, q).ds_pairs, kBackwardQueries * 2 * kTileBytes, kTileBytes, kTileStride};
    for (int64_t j = 0; j < steps_; ++j) {
      multiply_cell(dq_block(q) + j * kCellFloats, sum,
                    {columns + 2 * j * kTileBytes, block_bytes(), kTileBytes, kTileStride}, pairs, count);
    }
    if (end < p_.keys_met(q)) return;
    const __m512 factor = _mm512_set1_ps(result_scale());
    write_queries(dq_block(q), {{factor, factor}}, p_.rows(a_.dq, head_, q * kCell), a_.dq.token_stride,
                  least(kCell, p_.length - q * kCell), p_.width);
  }

  void write_key_gradients(int64_t k) {
    const int64_t rows = least(kCell, p_.length - k * kCell), from = (k - first_key_) * block_floats();
    write_keys(s_.dk_blocks + from, result_scale(), p_.rows(a_.dk, p_.kv, k * kCell), a_.dk.token_stride, rows,
               p_.width);
    write_keys(s_.dv_blocks + from, a_.masks.keep_scale, p_.rows(a_.dv, p_.kv, k * kCell), a_.dv.token_stride, rows,
               p_.width);
  }

  const AttentionBackward& a_;
  const Part& p_;
  const BackwardSpace& s_;
  int64_t steps_, row_tiles_;
  RowPanels k_, v_;
  int64_t group_ = 0, head_ = 0;
  int64_t first_key_ = 0, end_key_ = 0, first_query_ = 0, end_query_ = 0;  ///< cells
  HeadMasks masks_{};
};

}  // namespace

size_t workspace_bytes_backward(const AttentionShape& shape) {
  Pieces pieces(nullptr);
  [[maybe_unused]] const BackwardSpace space(pieces, cells_of(longest(shape)), shape.width,
                                             shape.heads / shape.kv_heads);
  return pieces.used();
}

void attention_backward(const AttentionBackward& args, void* workspace) {
  const AttentionShape& shape = args.shape;
  Pieces pieces(workspace);
  const BackwardSpace space(pieces, cells_of(longest(shape)), shape.width, shape.heads / shape.kv_heads);
  each_part(shape, [&](const Part& part) { BackwardPart(args, part, space).run(); });
}

}  // namespace lockstep::kernels::cpu::amx
