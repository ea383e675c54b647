#include "lockstep/kernels/attention.h"

#include "lockstep/base/error.h"
#include "lockstep/base/grain_team.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/cpu/amx.h"
#include "lockstep/kernels/cpu/attention_amx.h"

#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

/// bf16 goes to the kernel on tiles where there is one (cpu/attention_amx.h). The rest is here: attention by blocks.
/// A document's queries are cut into blocks of rows; a block meets the keys up to its own end (all keys when not
/// causal), with the G query heads of a key/value head stacked: S = Q K^T, softmax, O = P V. The backward pass makes P
/// again from S and the log-sum-exp. A short document is one block, and several key/value heads share one batched
/// product. Heads are packed into dense, zero-padded buffers whose lengths are multiples of kLengthUnit, so that few
/// matrix shapes occur and no operand's alignment depends on the caller.
/// Letters as in the header, and: G = N / K query heads per key/value head, B rows of a block, C keys it meets.
namespace lockstep::kernels {
namespace {

constexpr int64_t kLengthUnit = 32;
constexpr int64_t kMaxDocument = int64_t{1} << 20;  ///< key positions per query in the dropout stream

int64_t padded(int64_t length) { return (length + kLengthUnit - 1) / kLengthUnit * kLengthUnit; }

/// Rows of a query block, measured in bench/kernels: a call of a small product costs about as much as 8 MFLOP, so a
/// block must be tall, yet a second block skips a part of the masked half. The last block takes up to 1.5 blocks.
constexpr int64_t kBlockRows = 256;

struct Block {
  int64_t first;  ///< query row
  int64_t rows;   ///< padded
  int64_t keys;   ///< first + rows when causal, else all
};

/// The last block first: it meets all keys, and it is the tallest.
std::vector<Block> blocks_of(int64_t length, bool causal) {
  std::vector<Block> blocks;
  int64_t first = 0;
  for (; padded(length) - first >= 3 * kBlockRows / 2; first += kBlockRows) {
    blocks.push_back({first, kBlockRows, causal ? first + kBlockRows : padded(length)});
  }
  blocks.push_back({first, padded(length) - first, padded(length)});
  std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

/// Copies `count` rows of `bytes` bytes; common widths get a copy of fixed size.
template <int64_t kBytes>
void copy_rows_of(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t count) {
  for (int64_t r = 0; r < count; ++r) std::memcpy(to + r * to_stride, from + r * from_stride, kBytes);
}
void copy_rows(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t count, int64_t bytes) {
  switch (bytes) {
    case 32: return copy_rows_of<32>(to, to_stride, from, from_stride, count);
    case 64: return copy_rows_of<64>(to, to_stride, from, from_stride, count);
    case 128: return copy_rows_of<128>(to, to_stride, from, from_stride, count);
    case 256: return copy_rows_of<256>(to, to_stride, from, from_stride, count);
    default: break;
  }
  for (int64_t r = 0; r < count; ++r) {
    std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<size_t>(bytes));
  }
}

/// A [tokens, heads, D] operand: token t's part is contiguous at t * token_stride elements.
struct Heads {
  explicit Heads(const at::Tensor& x, const char* what)
      : data(static_cast<char*>(const_cast<void*>(x.const_data_ptr()))),
        element_bytes(static_cast<int64_t>(x.element_size())) {
    LS_CHECK(x.dim() == 3 && x.stride(2) == 1 && x.stride(1) == x.size(2),
             "attention: {} needs three dimensions and each token's part contiguous", what);
    token_stride = x.stride(0);
    token_bytes = token_stride * element_bytes;
    head_bytes = x.size(2) * element_bytes;
  }
  char* at(int64_t token, int64_t head) const { return data + token * token_bytes + head * head_bytes; }
  char* data;
  int64_t element_bytes;
  int64_t token_stride = 0, token_bytes = 0, head_bytes = 0;
};

RandomStream stream_of(const AttentionDropout& dropout, uint64_t ordinal, int64_t head) {
  return {dropout.seed, RandomPurpose::Dropout, dropout.module, ordinal, static_cast<uint32_t>(head)};
}
uint32_t drop_below(const AttentionDropout& dropout) { return static_cast<uint32_t>(dropout.probability * 0x1p32); }

struct Problem {
  int64_t tokens, heads, kv_heads, groups, width;
  cpu::Dtype dtype, acc_dtype;
  at::TensorOptions options, acc_options;
};

Problem check(const at::Tensor& q_TND, const at::Tensor& k_TKD, const at::Tensor& v_TKD,
              std::span<const int64_t> doc_starts, const AttentionConfig& config) {
  LS_CHECK(q_TND.dim() == 3 && k_TKD.dim() == 3, "attention: q and k need three dimensions");
  Problem p{};
  p.tokens = q_TND.size(0);
  p.heads = q_TND.size(1);
  p.kv_heads = k_TKD.size(1);
  p.width = q_TND.size(2);
  LS_CHECK(p.kv_heads > 0 && p.heads % p.kv_heads == 0, "attention: {} heads over {} key/value heads", p.heads,
           p.kv_heads);
  p.groups = p.heads / p.kv_heads;
  p.dtype = detail::dtype_of(q_TND, "attention: q_TND");
  p.acc_dtype = p.dtype == cpu::Dtype::F64 ? cpu::Dtype::F64 : cpu::Dtype::F32;
  p.options = q_TND.options();
  p.acc_options = p.options.dtype(detail::accumulator_of(q_TND.scalar_type()));
  for (const auto* x : {&k_TKD, &v_TKD}) {
    detail::require_shape(*x, {p.tokens, p.kv_heads, p.width}, "attention: k_TKD, v_TKD");
    detail::require_dtype(*x, q_TND.scalar_type(), "attention: k_TKD, v_TKD");
  }
  LS_CHECK(doc_starts.size() >= 2 && doc_starts.front() == 0 && doc_starts.back() == p.tokens,
           "attention: doc_starts must run from 0 to {}", p.tokens);
  for (size_t d = 0; d + 1 < doc_starts.size(); ++d) {
    const int64_t length = doc_starts[d + 1] - doc_starts[d];
    LS_CHECK(length >= 1 && length <= kMaxDocument, "attention: document {} has {} tokens", d, length);
  }
  LS_CHECK(config.scale > 0, "attention: scale = {}", config.scale);
  LS_CHECK(config.window >= 0 && config.softcap >= 0, "attention: window = {}, softcap = {}", config.window, config.softcap);
  LS_CHECK(config.window == 0 || config.causal, "attention: a window looks back, but this is not causal");
  const auto& dropout = config.dropout;
  LS_CHECK(dropout.probability >= 0 && dropout.probability < 1, "attention: dropout = {}", dropout.probability);
  LS_CHECK(dropout.probability == 0 || dropout.ordinals.size() + 1 == doc_starts.size(),
           "attention: {} ordinals for {} documents", dropout.ordinals.size(), doc_starts.size() - 1);
  return p;
}

/// Elements of one batch of score matrices: what should stay in the second-level cache.
constexpr int64_t kScoreElements = 3 << 19;

/// Key/value heads per product. Only a single block meets all keys, whose heads then lie back to back.
int64_t heads_per_batch(const Problem& p, const std::vector<Block>& blocks) {
  if (blocks.size() > 1) return 1;
  const int64_t scores = p.groups * blocks[0].rows * blocks[0].keys;
  return std::clamp<int64_t>(kScoreElements / scores, 1, p.kv_heads);
}

/// A dense buffer that holds one matrix, or several back to back.
class Buffer {
 public:
  Buffer& reserve(int64_t elements, const at::TensorOptions& options) {
    if (!flat_.defined() || flat_.numel() < elements) flat_ = at::empty({elements}, options);
    return *this;
  }
  at::Tensor matrices(int64_t count, int64_t rows, int64_t cols) const {
    if (count == 1) return flat_.as_strided({rows, cols}, {cols, 1}, 0);
    return flat_.as_strided({count, rows, cols}, {rows * cols, cols, 1}, 0);
  }
  void* data() const { return flat_.mutable_data_ptr(); }
  char* at(int64_t element) const { return static_cast<char*>(data()) + element * flat_.element_size(); }

 private:
  at::Tensor flat_;
};

at::Tensor transposed(const at::Tensor& x) { return x.transpose(-2, -1); }

void multiply(at::Tensor out, const at::Tensor& a, const at::Tensor& b) {
  if (a.dim() == 2) {
    at::mm_out(out, a, b);
  } else {
    at::bmm_out(out, a, b);
  }
}

/// What the products work in: one for all documents of a call, since fresh memory costs more than a small product.
struct Workspace {
  Buffer k, v;                  ///< [batch, padded, D]
  Buffer q, o;                  ///< [batch, G * B, D]; in the backward pass o holds do, then dq
  Buffer s, dp;                 ///< [batch, G * B, C]
  Buffer dk_sum, dv_sum, part;  ///< [batch, padded, D]
  Buffer row;
  std::vector<uint32_t> words;
};

/// One document of the grain.
class Document {
 public:
  Document(const Problem& problem, std::span<const int64_t> doc_starts, size_t index, const AttentionConfig& config,
           Workspace& workspace)
      : p_(problem),
        config_(config),
        w_(workspace),
        ordinal_(config.dropout.probability > 0 ? config.dropout.ordinals[index] : 0),
        start_(doc_starts[index]),
        length_(doc_starts[index + 1] - doc_starts[index]),
        padded_(padded(length_)),
        row_bytes_(p_.width * static_cast<int64_t>(c10::elementSize(p_.options.dtype().toScalarType()))),
        blocks_(blocks_of(length_, config.causal)),
        batch_(heads_per_batch(p_, blocks_)),
        keys_size_(padded_ * p_.width),
        queries_size_(p_.groups * std::max(blocks_.front().rows, blocks_.back().rows) * p_.width),
        scores_size_(queries_size_ / p_.width * padded_),
        k_(w_.k.reserve(batch_ * keys_size_, p_.options)),
        v_(w_.v.reserve(batch_ * keys_size_, p_.options)),
        q_(w_.q.reserve(batch_ * queries_size_, p_.options)),
        o_(w_.o.reserve(batch_ * queries_size_, p_.options)),
        s_(w_.s.reserve(batch_ * scores_size_, p_.options)),
        row_(w_.row.reserve(padded_, p_.acc_options)) {}

  void forward(const Heads& q, const Heads& k, const Heads& v, const Heads& o, const at::Tensor& lse_NT) {
    for (int64_t kv = 0; kv < p_.kv_heads; kv += batch_) {
      const int64_t count = std::min(batch_, p_.kv_heads - kv);
      pack_keys(k, kv, count, k_);
      pack_keys(v, kv, count, v_);
      for (const Block& block : blocks_) {
        const int64_t rows = p_.groups * block.rows;
        const at::Tensor s = scores(q, kv, count, block);
        for (int64_t i = 0; i < count; ++i) {
          cpu::table().softmax_forward(softmax_args(kv, i, block, lse_NT));
        }
        multiply(o_.matrices(count, rows, p_.width), s, v_.matrices(count, block.keys, p_.width));
        unpack_queries(o_, block, kv, count, o);
      }
    }
  }

  void backward(const Heads& d_o, const Heads& q, const Heads& k, const Heads& v, const at::Tensor& lse_NT,
                const at::Tensor& delta_NT, const Heads& dq, const Heads& dk, const Heads& dv) {
    const Buffer& dp = w_.dp.reserve(batch_ * scores_size_, p_.options);
    const Buffer& dk_sum = w_.dk_sum.reserve(batch_ * keys_size_, p_.acc_options);
    const Buffer& dv_sum = w_.dv_sum.reserve(batch_ * keys_size_, p_.acc_options);
    const Buffer& part = w_.part.reserve(batch_ * keys_size_, p_.options);
    for (int64_t kv = 0; kv < p_.kv_heads; kv += batch_) {
      const int64_t count = std::min(batch_, p_.kv_heads - kv);
      pack_keys(k, kv, count, k_);
      pack_keys(v, kv, count, v_);
      for (const Block& block : blocks_) {
        const int64_t rows = p_.groups * block.rows;
        const at::Tensor s = scores(q, kv, count, block);
        const at::Tensor d_out = o_.matrices(count, rows, p_.width);
        const at::Tensor ds = dp.matrices(count, rows, block.keys);
        pack_queries(d_o, block, kv, count, o_);
        multiply(ds, d_out, transposed(v_.matrices(count, block.keys, p_.width)));

        for (int64_t i = 0; i < count; ++i) {
          cpu::SoftmaxArgs args = softmax_args(kv, i, block, lse_NT);
          args.dp = dp.at(i * rows * block.keys);
          args.delta = head_statistics(delta_NT, kv + i);
          cpu::table().softmax_backward(args);
        }

        const at::Tensor grad = part.matrices(count, block.keys, p_.width);
        multiply(grad, transposed(s), d_out);
        sum_keys(block, count, part, dv_sum);
        multiply(grad, transposed(ds), q_.matrices(count, rows, p_.width));
        sum_keys(block, count, part, dk_sum);
        multiply(o_.matrices(count, rows, p_.width), ds, k_.matrices(count, block.keys, p_.width));
        unpack_queries(o_, block, kv, count, dq);
      }
      unpack_keys(dk_sum, kv, count, dk);
      unpack_keys(dv_sum, kv, count, dv);
    }
  }

 private:
  void clear_rows(char* to, int64_t count) const { std::memset(to, 0, static_cast<size_t>(count * row_bytes_)); }

  /// Per head [padded, D], rows past the document zero.
  void pack_keys(const Heads& x, int64_t kv, int64_t count, const Buffer& to) const {
    for (int64_t i = 0; i < count; ++i) {
      copy_rows(to.at(i * keys_size_), row_bytes_, x.at(start_, kv + i), x.token_bytes, length_, row_bytes_);
      clear_rows(to.at(i * keys_size_ + length_ * p_.width), padded_ - length_);
    }
  }

  /// Per key/value head [G * B, D]: the block's rows of its query heads, one head after the other.
  void pack_queries(const Heads& x, const Block& block, int64_t kv, int64_t count, const Buffer& to) const {
    const int64_t real = std::min(block.rows, length_ - block.first);
    for (int64_t n = 0; n < count * p_.groups; ++n) {
      const char* from = x.at(start_ + block.first, kv * p_.groups + n);
      copy_rows(to.at(n * block.rows * p_.width), row_bytes_, from, x.token_bytes, real, row_bytes_);
      clear_rows(to.at((n * block.rows + real) * p_.width), block.rows - real);
    }
  }

  void unpack_queries(const Buffer& from, const Block& block, int64_t kv, int64_t count, const Heads& x) const {
    const int64_t real = std::min(block.rows, length_ - block.first);
    for (int64_t n = 0; n < count * p_.groups; ++n) {
      char* to = x.at(start_ + block.first, kv * p_.groups + n);
      copy_rows(to, x.token_bytes, from.at(n * block.rows * p_.width), row_bytes_, real, row_bytes_);
    }
  }

  /// The first block of the walk meets all keys and overwrites; the others are added in float32 (float64).
  void sum_keys(const Block& block, int64_t count, const Buffer& part, const Buffer& sum) const {
    const int64_t elements = count * block.keys * p_.width;
    if (block.first == blocks_.front().first) {
      cpu::table().convert(p_.dtype, part.data(), p_.acc_dtype, sum.data(), elements);
    } else {
      cpu::table().add_into(sum.data(), p_.dtype, part.data(), elements);
    }
  }

  void unpack_keys(const Buffer& sum, int64_t kv, int64_t count, const Heads& x) const {
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t t = 0; t < length_; ++t) {
        cpu::table().convert(p_.acc_dtype, sum.at(i * keys_size_ + t * p_.width), p_.dtype, x.at(start_ + t, kv + i),
                             p_.width);
      }
    }
  }

  at::Tensor scores(const Heads& q, int64_t kv, int64_t count, const Block& block) {
    const int64_t rows = p_.groups * block.rows;
    pack_queries(q, block, kv, count, q_);
    at::Tensor s = s_.matrices(count, rows, block.keys);
    multiply(s, q_.matrices(count, rows, p_.width), transposed(k_.matrices(count, block.keys, p_.width)));
    return s;
  }

  /// Head kv * G's row of a [N, T] tensor, at this document's first token.
  void* head_statistics(const at::Tensor& x_NT, int64_t kv) const {
    return static_cast<char*>(const_cast<void*>(x_NT.const_data_ptr())) +
           (kv * p_.groups * p_.tokens + start_) * static_cast<int64_t>(x_NT.element_size());
  }

  /// For key/value head kv + i, the batch's i-th.
  cpu::SoftmaxArgs softmax_args(int64_t kv, int64_t i, const Block& block, const at::Tensor& lse_NT) {
    cpu::SoftmaxArgs args{};
    args.dtype = p_.dtype;
    args.s = s_.at(i * p_.groups * block.rows * block.keys);
    args.groups = p_.groups;
    args.part_rows = block.rows;
    args.cols = block.keys;
    args.first_query = block.first;
    args.num_queries = length_;
    args.causal = config_.causal;
    args.window = config_.window;
    args.scale = config_.scale;
    args.softcap = config_.softcap;
    args.lse = head_statistics(lse_NT, kv + i);
    args.stat_stride = p_.tokens;
    args.scratch = row_.data();
    if (config_.dropout.probability > 0) draw_dropout(kv + i, block, args);
    return args;
  }

  /// Word (query << 20) + key of the head's stream decides.
  void draw_dropout(int64_t kv, const Block& block, cpu::SoftmaxArgs& args) {
    w_.words.resize(static_cast<size_t>(p_.groups * block.rows * block.keys));
    for (int64_t g = 0; g < p_.groups; ++g) {
      const RandomStream stream = stream_of(config_.dropout, ordinal_, kv * p_.groups + g);
      for (int64_t r = 0; r < std::min(block.rows, length_ - block.first); ++r) {
        const auto query = static_cast<uint64_t>(block.first + r);
        stream.fill(w_.words.data() + (g * block.rows + r) * block.keys, query * uint64_t{kMaxDocument},
                    config_.causal ? query + 1 : static_cast<uint64_t>(length_));
      }
    }
    args.words = w_.words.data();
    args.drop_below = drop_below(config_.dropout);
    args.keep_scale = 1 / (1 - config_.dropout.probability);
  }

  const Problem& p_;
  const AttentionConfig& config_;
  Workspace& w_;
  uint64_t ordinal_;
  int64_t start_, length_, padded_, row_bytes_;
  std::vector<Block> blocks_;
  int64_t batch_;                                  ///< key/value heads per product
  int64_t keys_size_, queries_size_, scores_size_;  ///< elements per key/value head
  const Buffer &k_, &v_, &q_, &o_, &s_, &row_;
};

// ---- the kernel on tiles -------------------------------------------------------------------------------------------

/// Documents first..first+count-1 in a row that go the same way.
struct DocumentRun {
  size_t first, count;
  bool tiles;
};

/// Documents and key/value heads that are computed together: all of a run, or one of each for a part of a team.
struct TileUnit {
  size_t doc;
  size_t num_docs;
  int64_t kv, num_kv;
};

/// The work of a run for each part: the largest units first, each to the part that has least.
std::vector<std::vector<TileUnit>> deal_units(const Problem& p, std::span<const int64_t> doc_starts, const DocumentRun& run,
                                              int parts) {
  std::vector<size_t> docs(run.count);
  std::iota(docs.begin(), docs.end(), run.first);
  const auto length = [&](size_t doc) { return doc_starts[doc + 1] - doc_starts[doc]; };
  std::stable_sort(docs.begin(), docs.end(), [&](size_t a, size_t b) { return length(a) > length(b); });
  std::vector<std::vector<TileUnit>> dealt(static_cast<size_t>(parts));
  std::vector<int64_t> load(dealt.size());
  for (const size_t doc : docs) {
    for (int64_t kv = 0; kv < p.kv_heads; ++kv) {
      const auto least = std::min_element(load.begin(), load.end()) - load.begin();
      dealt[static_cast<size_t>(least)].push_back({doc, 1, kv, 1});
      load[static_cast<size_t>(least)] += length(doc) * length(doc);
    }
  }
  return dealt;
}

/// Calls work(unit) for all of a run's documents and heads, on the grain's team if there is one.
void for_each_unit(const Problem& p, std::span<const int64_t> doc_starts, const DocumentRun& run,
                   const std::function<void(const TileUnit&)>& work) {
  GrainTeam* team = GrainTeam::of_this_thread();
  if (team == nullptr) return work({run.first, run.count, 0, p.kv_heads});
  const std::vector<std::vector<TileUnit>> dealt = deal_units(p, doc_starts, run, team->parts());
  team->run([&](int part) {
    for (const TileUnit& unit : dealt[static_cast<size_t>(part)]) work(unit);
  });
}

cpu::amx::AttentionShape tile_shape(const Problem& p, std::span<const int64_t> doc_starts, const TileUnit& unit,
                                    const AttentionConfig& config) {
  return {p.groups * unit.num_kv, unit.num_kv,  p.width, doc_starts.data() + unit.doc, static_cast<int64_t>(unit.num_docs),
          config.scale,           config.causal};
}

std::vector<uint32_t> mask_keys(const Problem& p, const AttentionDropout& dropout) {
  std::vector<uint32_t> keys;
  for (int64_t head = 0; dropout.probability > 0 && head < p.heads; ++head) {
    for (const uint32_t word : stream_of(dropout, 0, head).key()) keys.push_back(word);
  }
  return keys;
}

cpu::amx::AttentionMasks tile_masks(const std::vector<uint32_t>& keys, const AttentionDropout& dropout, const Problem& p,
                                    const TileUnit& unit) {
  if (keys.empty()) return {};
  return {keys.data() + 2 * unit.kv * p.groups, dropout.ordinals.data() + unit.doc, drop_below(dropout), static_cast<float>(1 / (1 - dropout.probability))};
}

/// From head `first` on.
cpu::amx::HeadsIn tile_input(const Heads& x, int64_t first) {
  return {reinterpret_cast<const uint16_t*>(x.at(0, first)), x.token_stride};
}
cpu::amx::HeadsOut tile_output(const Heads& x, int64_t first) {
  return {reinterpret_cast<uint16_t*>(x.at(0, first)), x.token_stride};
}

/// Operations of one of the products of queries by keys, without what a causal document leaves out.
int64_t product_flops(const at::Tensor& q_TND, std::span<const int64_t> doc_starts, const AttentionConfig& config) {
  int64_t pairs = 0;
  for (size_t doc = 0; doc + 1 < doc_starts.size(); ++doc) {
    const int64_t length = doc_starts[doc + 1] - doc_starts[doc];
    pairs += config.causal ? length * (length + 1) / 2 : length * length;
  }
  return 2 * pairs * q_TND.size(1) * q_TND.size(2);
}

bool on_tiles(const Problem& p, const AttentionConfig& config) {
  const at::ScalarType dtype = p.options.dtype().toScalarType();
  const AttentionPath best = attention_path(dtype, p.width);
  LS_CHECK(config.path != AttentionPath::Tiles || best == AttentionPath::Tiles,
           "attention: this processor has no tiles for {} of width {}", c10::toString(dtype), p.width);
  return config.path.value_or(best) == AttentionPath::Tiles && config.softcap == 0;
}

/// A document that is longer than the window leaves the tiles; what the others do must not depend on it.
std::vector<DocumentRun> runs_of(const Problem& p, std::span<const int64_t> doc_starts, const AttentionConfig& config) {
  const bool tiles = on_tiles(p, config);
  std::vector<DocumentRun> runs;
  for (size_t d = 0; d + 1 < doc_starts.size(); ++d) {
    const bool cut = config.window > 0 && doc_starts[d + 1] - doc_starts[d] > config.window;
    if (runs.empty() || runs.back().tiles != (tiles && !cut)) runs.push_back({d, 0, tiles && !cut});
    ++runs.back().count;
  }
  return runs;
}

}  // namespace

AttentionPath attention_path(at::ScalarType dtype, int64_t width) {
  const bool fits = dtype == at::kBFloat16 && width % 32 == 0;
  return fits && cpu::amx::available() ? AttentionPath::Tiles : AttentionPath::Products;
}

AttentionSaved attention_forward(const at::Tensor& q_TND, const at::Tensor& k_TKD, const at::Tensor& v_TKD,
                                 std::span<const int64_t> doc_starts, const AttentionConfig& config) {
  const profile::Scope span(profile::Kind::AttentionForward, [&] { return 2 * product_flops(q_TND, doc_starts, config); });
  const Problem p = check(q_TND, k_TKD, v_TKD, doc_starts, config);
  AttentionSaved saved{at::empty({p.tokens, p.heads, p.width}, p.options),
                       at::empty({p.heads, p.tokens}, p.acc_options)};
  const Heads q(q_TND, "q_TND"), k(k_TKD, "k_TKD"), v(v_TKD, "v_TKD"), o(saved.o_TND, "o_TND");
  for (const DocumentRun& run : runs_of(p, doc_starts, config)) {
    if (run.tiles) {
      const std::vector<uint32_t> keys = mask_keys(p, config.dropout);
      for_each_unit(p, doc_starts, run, [&](const TileUnit& unit) {
        const int64_t head = unit.kv * p.groups;
        const cpu::amx::AttentionForward args{tile_shape(p, doc_starts, unit, config), tile_masks(keys, config.dropout, p, unit),
                                              tile_input(q, head), tile_input(k, unit.kv), tile_input(v, unit.kv),
                                              tile_output(o, head),
                                              saved.lse_NT.mutable_data_ptr<float>() + head * p.tokens, p.tokens};
        cpu::amx::attention_forward(args, cpu::amx::thread_workspace(workspace_bytes_forward(args.shape)));
      });
      continue;
    }
    split_grain_work(static_cast<int64_t>(run.count), 1, [&](int64_t begin, int64_t end, int) {
      Workspace workspace;
      for (size_t d = run.first + static_cast<size_t>(begin); d < run.first + static_cast<size_t>(end); ++d) {
        Document(p, doc_starts, d, config, workspace).forward(q, k, v, o, saved.lse_NT);
      }
    });
  }
  return saved;
}

AttentionGrads attention_backward(const at::Tensor& do_TND, const at::Tensor& q_TND, const at::Tensor& k_TKD,
                                  const at::Tensor& v_TKD, const AttentionSaved& saved,
                                  std::span<const int64_t> doc_starts, const AttentionConfig& config) {
  const profile::Scope span(profile::Kind::AttentionBackward, [&] { return 5 * product_flops(q_TND, doc_starts, config); });
  const Problem p = check(q_TND, k_TKD, v_TKD, doc_starts, config);
  for (const auto* x : {&do_TND, &saved.o_TND}) {
    detail::require_shape(*x, q_TND.sizes(), "attention_backward: do_TND, o_TND");
    detail::require_dtype(*x, q_TND.scalar_type(), "attention_backward: do_TND, o_TND");
  }
  detail::require_contiguous(saved.lse_NT, "attention_backward: lse_NT");
  detail::require_shape(saved.lse_NT, {p.heads, p.tokens}, "attention_backward: lse_NT");
  detail::require_dtype(saved.lse_NT, p.acc_options.dtype().toScalarType(), "attention_backward: lse_NT");

  AttentionGrads grads{at::empty({p.tokens, p.heads, p.width}, p.options),
                       at::empty({p.tokens, p.kv_heads, p.width}, p.options),
                       at::empty({p.tokens, p.kv_heads, p.width}, p.options)};
  const Heads d_o(do_TND, "do_TND"), o(saved.o_TND, "o_TND"), q(q_TND, "q_TND"), k(k_TKD, "k_TKD"), v(v_TKD, "v_TKD");
  const Heads dq(grads.dq_TND, "dq"), dk(grads.dk_TKD, "dk"), dv(grads.dv_TKD, "dv");
  at::Tensor delta_NT;
  for (const DocumentRun& run : runs_of(p, doc_starts, config)) {
    if (run.tiles) {
      const std::vector<uint32_t> keys = mask_keys(p, config.dropout);
      for_each_unit(p, doc_starts, run, [&](const TileUnit& unit) {
        const int64_t head = unit.kv * p.groups, kv = unit.kv;
        const cpu::amx::AttentionBackward args{
            tile_shape(p, doc_starts, unit, config), tile_masks(keys, config.dropout, p, unit),
            tile_input(d_o, head), tile_input(o, head), tile_input(q, head), tile_input(k, kv), tile_input(v, kv),
            saved.lse_NT.const_data_ptr<float>() + head * p.tokens, p.tokens,
            tile_output(dq, head), tile_output(dk, kv), tile_output(dv, kv)};
        cpu::amx::attention_backward(args, cpu::amx::thread_workspace(workspace_bytes_backward(args.shape)));
      });
      continue;
    }
    if (!delta_NT.defined()) {
      delta_NT = at::empty({p.heads, p.tokens}, p.acc_options);
      cpu::table().head_dots(p.dtype, d_o.data, d_o.token_stride, o.data, o.token_stride, p.tokens, p.heads, p.width,
                             delta_NT.mutable_data_ptr(), p.tokens);
    }
    split_grain_work(static_cast<int64_t>(run.count), 1, [&](int64_t begin, int64_t end, int) {
      Workspace workspace;
      for (size_t d = run.first + static_cast<size_t>(begin); d < run.first + static_cast<size_t>(end); ++d) {
        Document(p, doc_starts, d, config, workspace).backward(d_o, q, k, v, saved.lse_NT, delta_NT, dq, dk, dv);
      }
    });
  }
  return grads;
}

}  // namespace lockstep::kernels
