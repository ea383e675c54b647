#pragma once

#include <cstdint>

/// The inner loops of the CPU kernels over raw rows, compiled three times from the same source (cpu/*.inc) for three
/// instruction sets. All arithmetic runs in 64-byte packs anchored at the start of a row, with explicit fused
/// multiply-adds and fixed reduction trees, so the three paths give the same bits and neither alignment nor thread
/// can show. bf16 and float32 compute in float32, float64 in float64. Torch-free. All functions are thread-safe.
namespace lockstep::kernels::cpu {

enum class Dtype : uint8_t { Bf16, F32, F64 };

/// "acc" below: float64 when the data is float64, else float32.

struct RmsNormArgs {
  Dtype x_dtype, delta_dtype, out_dtype;  ///< all F64 or none
  void* x;              ///< [rows, width]; written only with delta
  const void* delta;    ///< may be null; else x += delta before the norm
  const void* w;        ///< [width] acc
  void* rstd;           ///< [rows] acc; read instead of computed when rstd_given
  void* y;              ///< [rows, width]
  int64_t rows, width;
  double eps;
  bool rstd_given;
};

struct RmsNormBackwardArgs {
  Dtype dy_dtype, x_dtype, dx_dtype;
  const void* dy;
  const void* x;
  const void* rstd;     ///< [rows] acc
  const void* w;        ///< [width] acc
  void* dx;             ///< added to
  void* dw;             ///< [width] acc, overwritten: sums of 16 rows each, added in order
  void* scratch;        ///< [width] acc
  int64_t rows, width;
};

struct LayerNormArgs {
  Dtype x_dtype;        ///< F32 or F64
  Dtype delta_dtype, y_dtype;
  void* x;              ///< [rows, width]; written only with delta
  const void* delta;    ///< may be null; else x += delta before the norm
  const void* w;        ///< [width], as b, of x_dtype
  const void* b;
  void* mean;           ///< [rows], as rstd, of x_dtype; read instead of computed when moments_given
  void* rstd;
  void* y;              ///< [rows, width]
  int64_t rows, width;
  double eps;
  bool moments_given;
};

struct LayerNormBackwardArgs {
  Dtype dtype;          ///< of everything: F32 or F64
  const void* dy;
  const void* x;
  const void* mean;
  const void* rstd;
  const void* w;
  void* dx;             ///< overwritten; may be dy
  void* dw;             ///< [width], as db; overwritten: sums of 16 rows each, added in order
  void* db;
  void* scratch;        ///< [2 * width]
  int64_t rows, width;
};

enum class Function : uint8_t { Gelu, GeluTanh, Relu, Tanh };

struct BinaryCrossEntropyArgs {
  Dtype dtype;          ///< of everything: F32 or F64
  const void* logits;
  const void* labels;   ///< from 0 to 1
  void* loss;
  void* grad;           ///< of loss * grad_scale; may be null
  int64_t count;
  double grad_scale;
};

struct RopeArgs {
  Dtype dtype;
  void* x;              ///< token t's [heads, width] part at x + t * token_stride elements
  int64_t tokens, heads, width, token_stride;
  int64_t rotated;      ///< even, at most width: the head's first elements, which turn
  const int32_t* position;
  const void* cosine;   ///< [positions, rotated / 2] acc
  const void* sine;
  bool inverse;
};

struct CrossEntropyArgs {
  Dtype dtype;
  void* logits;         ///< [rows, vocab]; overwritten with the gradient when compute_grad
  const int64_t* target;
  void* nll;            ///< [rows] acc
  void* entropy;        ///< [rows] acc
  bool* top1;           ///< [rows]
  void* scratch;        ///< [vocab] acc
  int64_t rows, vocab;
  double grad_scale;
  bool compute_grad;
};

/// One block of query rows of one key/value head: `groups` stacked parts of `part_rows` rows each, all against keys
/// 0..cols-1; cols is a multiple of 16. Row r of a part is query first_query + r and sees keys 0..query when causal,
/// else keys 0..num_queries-1; rows at or past num_queries are padding. With a window, a causal query sees the last
/// `window` of its keys alone. With a soft cap, a score is softcap * tanh(s * scale / softcap). What is not seen becomes zero.
struct SoftmaxArgs {
  Dtype dtype;
  void* s;              ///< [groups * part_rows, cols]: scores in, (dropped) probabilities out
  void* dp;             ///< backward: gradient of the dropped probabilities in, of the scores out; forward: null
  int64_t groups, part_rows, cols;
  int64_t first_query, num_queries;
  bool causal;
  int64_t window;       ///< 0: none
  double scale;
  double softcap;       ///< 0: none
  void* lse;            ///< acc, row r of group g at lse + g * stat_stride + first_query + r; forward writes it
  const void* delta;    ///< backward: sum over width of do * o, laid out as lse
  int64_t stat_stride;
  void* scratch;        ///< [cols] acc
  const uint32_t* words;     ///< random words [groups * part_rows, cols], null: no dropout
  uint32_t drop_below;       ///< a probability is dropped when its word is below this
  double keep_scale;         ///< 1 / (1 - p)
};

/// Products of single rows: out[b, o] = sum over i of x[b, i] * w[o, i] (+ bias[o]), for o in [first, last).
struct RowProductArgs {
  Dtype dtype;          ///< of w
  const void* x;        ///< [rows, inputs] acc
  const void* w;        ///< [outputs, inputs], or transposed [inputs, outputs]
  const void* bias;     ///< [outputs] acc, may be null
  void* out;            ///< [rows, outputs] acc
  int64_t rows, inputs, outputs, first, last;
  bool transposed;
};

/// Attention of one token for the query heads of one key/value head, over keys first..keys-1.
struct TokenAttentionArgs {
  Dtype dtype;
  const void* q;        ///< [groups, width]
  const void* k;        ///< token t's head at k + t * stride elements, as v
  const void* v;
  void* o;              ///< [groups, width]
  void* scratch;        ///< [keys + 16] acc
  int64_t first, keys, stride, width, groups;
  double scale, softcap;
};

struct Table {
  void (*convert)(Dtype from, const void* src, Dtype to, void* dst, int64_t count);
  /// acc[i] += x[i].
  void (*add_into)(void* acc, Dtype x_dtype, const void* x, int64_t count);
  /// out[c] = sum over r of x[r, c]: sums of 16 rows each, added in order. `out` is acc.
  void (*column_sums)(Dtype dtype, const void* x, int64_t rows, int64_t cols, void* out);
  /// Dot products of rows of `width`: row (t, n) lies at t * stride + n * width, its result at out[n * out_stride + t].
  void (*head_dots)(Dtype dtype, const void* a, int64_t a_stride, const void* b, int64_t b_stride, int64_t tokens,
                    int64_t heads, int64_t width, void* out, int64_t out_stride);
  void (*rms_norm)(const RmsNormArgs& args);
  void (*rms_norm_backward)(const RmsNormBackwardArgs& args);
  void (*layer_norm)(const LayerNormArgs& args);
  void (*layer_norm_backward)(const LayerNormBackwardArgs& args);
  void (*activation)(Function function, Dtype dtype, const void* x, void* y, int64_t count);
  /// dx = dy * derivative at x; dx may be dy. y, unless null, gets what activation gives.
  void (*activation_backward)(Function function, Dtype dtype, const void* dy, const void* x, void* dx, void* y,
                              int64_t count);
  /// dst[i] = words[i] < drop_below ? 0 : src[i] * keep_scale. `words` is readable up to the next multiple of 16.
  void (*drop)(Dtype from, const void* src, Dtype to, void* dst, int64_t count, const uint32_t* words,
               uint32_t drop_below, double keep_scale);
  void (*binary_cross_entropy)(const BinaryCrossEntropyArgs& args);
  void (*rope)(const RopeArgs& args);
  void (*swiglu)(Dtype dtype, const void* gate, const void* up, void* out, int64_t count);
  /// h, unless null, gets what swiglu (geglu) gives.
  void (*swiglu_backward)(Dtype dtype, const void* dh, const void* gate, const void* up, void* dgate, void* dup, void* h,
                          int64_t count);
  void (*geglu)(Dtype dtype, const void* gate, const void* up, void* out, int64_t count);
  void (*geglu_backward)(Dtype dtype, const void* dh, const void* gate, const void* up, void* dgate, void* dup, void* h,
                         int64_t count);
  /// x = cap * tanh(x / cap), in place.
  void (*softcap)(Dtype dtype, void* x, double cap, int64_t count);
  /// dy *= 1 - (y / cap)^2, in place, from the capped y.
  void (*softcap_backward)(Dtype dtype, void* dy, const void* y, double cap, int64_t count);
  void (*cross_entropy)(const CrossEntropyArgs& args);
  void (*softmax_forward)(const SoftmaxArgs& args);
  void (*softmax_backward)(const SoftmaxArgs& args);
  void (*row_product)(const RowProductArgs& args);
  void (*token_attention)(const TokenAttentionArgs& args);
  /// The elementary functions alone, float32, for their accuracy tests.
  void (*exp_f32)(const float* x, float* y, int64_t count);
  void (*sigmoid_f32)(const float* x, float* y, int64_t count);
  void (*log_f32)(const float* x, float* y, int64_t count);
  void (*activation_f32)(Function function, const float* x, float* y, float* slope, int64_t count);
};

enum class Path : uint8_t { Avx512, Avx2, Plain };
/// Null when this processor cannot run the path.
const Table* table_of(Path path);
/// The widest path this processor has; they all give the same bits.
const Table& table();

}  // namespace lockstep::kernels::cpu
