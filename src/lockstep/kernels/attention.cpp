#include "lockstep/kernels/attention.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/checks.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <cmath>
#include <cstring>

/// Block-causal attention. A document's queries are cut into blocks of rows; a block meets the keys up to its own end,
/// one key/value head at a time with that head's G query heads stacked: S = Q K^T, softmax, O = P V. The backward pass
/// makes P again from S and the log-sum-exp. Heads are packed into dense, zero-padded buffers whose lengths are
/// multiples of kLengthUnit, so that few matrix shapes occur and no operand's alignment depends on the caller.
/// Letters as in the header, and: G = N / K query heads per key/value head, B rows of a block, C keys it meets.
namespace lockstep::kernels {
namespace {

constexpr int64_t kLengthUnit = 32;
constexpr int64_t kMaxDocument = int64_t{1} << 20;  ///< key positions per query in the dropout stream

int64_t padded(int64_t length) { return (length + kLengthUnit - 1) / kLengthUnit * kLengthUnit; }

/// Rows of a query block; measured in bench/kernels. Taller blocks make better products, shorter ones skip more of
/// the masked half.
int64_t rows_per_block(int64_t groups) { return groups == 1 ? 256 : 128; }

struct Block {
  int64_t first;  ///< query row
  int64_t rows;   ///< padded
  int64_t keys;   ///< first + rows
};

/// The last block first: it meets all keys.
std::vector<Block> blocks_of(int64_t length, int64_t groups) {
  const int64_t rows = rows_per_block(groups);
  std::vector<Block> blocks;
  for (int64_t first = 0; first < length; first += rows) {
    const int64_t here = std::min(rows, padded(length - first));
    blocks.push_back({first, here, first + here});
  }
  std::reverse(blocks.begin(), blocks.end());
  return blocks;
}

/// A [tokens, heads, D] operand: token t's part is contiguous at t * token_stride elements.
struct Heads {
  explicit Heads(const at::Tensor& x, const char* what)
      : data(static_cast<char*>(const_cast<void*>(x.const_data_ptr()))),
        element_bytes(static_cast<int64_t>(x.element_size())) {
    LS_CHECK(x.dim() == 3 && x.stride(2) == 1 && x.stride(1) == x.size(2),
             "attention: {} needs three dimensions and each token's part contiguous", what);
    token_stride = x.stride(0);
    width = x.size(2);
  }
  char* at(int64_t token, int64_t head) const {
    return data + (token * token_stride + head * width) * element_bytes;
  }
  char* data;
  int64_t element_bytes;
  int64_t token_stride = 0;
  int64_t width = 0;
};

struct Problem {
  int64_t tokens, heads, kv_heads, groups, width;
  cpu::Dtype dtype;
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
  const auto& dropout = config.dropout;
  LS_CHECK(dropout.probability >= 0 && dropout.probability < 1, "attention: dropout = {}", dropout.probability);
  LS_CHECK(dropout.probability == 0 || dropout.ordinals.size() + 1 == doc_starts.size(),
           "attention: {} ordinals for {} documents", dropout.ordinals.size(), doc_starts.size() - 1);
  return p;
}

/// A dense buffer from which matrices are cut.
class Buffer {
 public:
  Buffer(int64_t elements, const at::TensorOptions& options) : flat_(at::empty({elements}, options)) {}
  at::Tensor matrix(int64_t rows, int64_t cols, int64_t offset = 0) const {
    return flat_.as_strided({rows, cols}, {cols, 1}, offset);
  }
  void* data() const { return flat_.mutable_data_ptr(); }
  char* at(int64_t element) const { return static_cast<char*>(data()) + element * flat_.element_size(); }

 private:
  at::Tensor flat_;
};

/// One document of the grain, with the buffers its products work in.
class Document {
 public:
  Document(const Problem& problem, std::span<const int64_t> doc_starts, size_t index, const AttentionConfig& config)
      : p_(problem),
        config_(config),
        ordinal_(config.dropout.probability > 0 ? config.dropout.ordinals[index] : 0),
        start_(doc_starts[index]),
        length_(doc_starts[index + 1] - doc_starts[index]),
        padded_(padded(length_)),
        blocks_(blocks_of(length_, p_.groups)),
        block_rows_(std::min(rows_per_block(p_.groups), padded_)),
        k_(padded_ * p_.width, p_.options),
        v_(padded_ * p_.width, p_.options),
        q_(p_.groups * block_rows_ * p_.width, p_.options),
        o_(p_.groups * block_rows_ * p_.width, p_.options),
        s_(p_.groups * block_rows_ * padded_, p_.options),
        row_(padded_, p_.acc_options) {}

  void forward(const Heads& q, const Heads& k, const Heads& v, const Heads& o, const at::Tensor& lse_NT) {
    for (int64_t kv = 0; kv < p_.kv_heads; ++kv) {
      pack_keys(k, kv, k_);
      pack_keys(v, kv, v_);
      for (const Block& block : blocks_) {
        at::Tensor s = scores(q, kv, block);
        cpu::SoftmaxArgs args = softmax_args(kv, block, lse_NT);
        cpu::table().softmax_forward(args);
        at::Tensor out = o_.matrix(p_.groups * block.rows, p_.width);
        at::mm_out(out, s, v_.matrix(block.keys, p_.width));
        unpack_queries(o_, block, kv, o);
      }
    }
  }

  void backward(const Heads& d_o, const Heads& q, const Heads& k, const Heads& v, const at::Tensor& lse_NT,
                const at::Tensor& delta_NT, const Heads& dq, const Heads& dk, const Heads& dv) {
    const int64_t keys_size = padded_ * p_.width;
    const Buffer dp(p_.groups * block_rows_ * padded_, p_.options);
    const Buffer dk_sum(keys_size, p_.acc_options);
    const Buffer dv_sum(keys_size, p_.acc_options);
    const Buffer part(keys_size, p_.options);
    for (int64_t kv = 0; kv < p_.kv_heads; ++kv) {
      pack_keys(k, kv, k_);
      pack_keys(v, kv, v_);
      for (const Block& block : blocks_) {
        const int64_t rows = p_.groups * block.rows;
        const at::Tensor s = scores(q, kv, block);
        pack_queries(d_o, block, kv, o_);
        const at::Tensor d_out = o_.matrix(rows, p_.width);
        at::Tensor ds = dp.matrix(rows, block.keys);
        at::mm_out(ds, d_out, v_.matrix(block.keys, p_.width).t());

        cpu::SoftmaxArgs args = softmax_args(kv, block, lse_NT);
        args.dp = dp.data();
        args.delta = head_statistics(delta_NT, kv);
        cpu::table().softmax_backward(args);

        at::Tensor grad = part.matrix(block.keys, p_.width);
        at::mm_out(grad, s.t(), d_out);
        sum_keys(block, part, dv_sum);
        at::mm_out(grad, ds.t(), q_.matrix(rows, p_.width));
        sum_keys(block, part, dk_sum);
        at::Tensor dq_block = o_.matrix(rows, p_.width);  // do is not needed any more
        at::mm_out(dq_block, ds, k_.matrix(block.keys, p_.width));
        unpack_queries(o_, block, kv, dq);
      }
      unpack_keys(dk_sum, kv, dk);
      unpack_keys(dv_sum, kv, dv);
    }
  }

 private:
  size_t row_bytes() const { return static_cast<size_t>(p_.width) * at::elementSize(p_.options.dtype().toScalarType()); }

  /// [padded, D], rows past the document zero.
  void pack_keys(const Heads& x, int64_t kv, const Buffer& to) const {
    for (int64_t t = 0; t < length_; ++t) std::memcpy(to.at(t * p_.width), x.at(start_ + t, kv), row_bytes());
    std::memset(to.at(length_ * p_.width), 0, static_cast<size_t>(padded_ - length_) * row_bytes());
  }

  /// [G * B, D]: the block's rows of each query head of the group, one head after the other.
  void pack_queries(const Heads& x, const Block& block, int64_t kv, const Buffer& to) const {
    const int64_t real = std::min(block.rows, length_ - block.first);
    for (int64_t g = 0; g < p_.groups; ++g) {
      const int64_t base = g * block.rows;
      for (int64_t r = 0; r < real; ++r) {
        std::memcpy(to.at((base + r) * p_.width), x.at(start_ + block.first + r, kv * p_.groups + g), row_bytes());
      }
      std::memset(to.at((base + real) * p_.width), 0, static_cast<size_t>(block.rows - real) * row_bytes());
    }
  }

  void unpack_queries(const Buffer& from, const Block& block, int64_t kv, const Heads& x) const {
    const int64_t real = std::min(block.rows, length_ - block.first);
    for (int64_t g = 0; g < p_.groups; ++g) {
      for (int64_t r = 0; r < real; ++r) {
        std::memcpy(x.at(start_ + block.first + r, kv * p_.groups + g), from.at((g * block.rows + r) * p_.width),
                    row_bytes());
      }
    }
  }

  /// The first block of the walk meets all keys and overwrites; the others are added in float32 (float64).
  void sum_keys(const Block& block, const Buffer& part, const Buffer& sum) const {
    const int64_t count = block.keys * p_.width;
    if (block.keys == padded_) {
      const auto acc = p_.dtype == cpu::Dtype::F64 ? cpu::Dtype::F64 : cpu::Dtype::F32;
      cpu::table().convert(p_.dtype, part.data(), acc, sum.data(), count);
    } else {
      cpu::table().add_into(sum.data(), p_.dtype, part.data(), count);
    }
  }

  void unpack_keys(const Buffer& sum, int64_t kv, const Heads& x) const {
    const auto acc = p_.dtype == cpu::Dtype::F64 ? cpu::Dtype::F64 : cpu::Dtype::F32;
    for (int64_t t = 0; t < length_; ++t) {
      cpu::table().convert(acc, sum.at(t * p_.width), p_.dtype, x.at(start_ + t, kv), p_.width);
    }
  }

  at::Tensor scores(const Heads& q, int64_t kv, const Block& block) {
    const int64_t rows = p_.groups * block.rows;
    pack_queries(q, block, kv, q_);
    at::Tensor s = s_.matrix(rows, block.keys);
    at::mm_out(s, q_.matrix(rows, p_.width), k_.matrix(block.keys, p_.width).t());
    return s;
  }

  /// Head kv * G's row of a [N, T] tensor, at this document's first token.
  void* head_statistics(const at::Tensor& x_NT, int64_t kv) const {
    return static_cast<char*>(const_cast<void*>(x_NT.const_data_ptr())) +
           (kv * p_.groups * p_.tokens + start_) * static_cast<int64_t>(x_NT.element_size());
  }

  cpu::SoftmaxArgs softmax_args(int64_t kv, const Block& block, const at::Tensor& lse_NT) {
    cpu::SoftmaxArgs args{};
    args.dtype = p_.dtype;
    args.s = s_.data();
    args.groups = p_.groups;
    args.part_rows = block.rows;
    args.cols = block.keys;
    args.first_query = block.first;
    args.num_queries = length_;
    args.scale = config_.scale;
    args.lse = head_statistics(lse_NT, kv);
    args.stat_stride = p_.tokens;
    args.scratch = row_.data();
    if (config_.dropout.probability > 0) draw_dropout(kv, block, args);
    return args;
  }

  /// Word (query << 20) + key of the head's stream decides.
  void draw_dropout(int64_t kv, const Block& block, cpu::SoftmaxArgs& args) {
    words_.resize(static_cast<size_t>(p_.groups * block.rows * block.keys));
    for (int64_t g = 0; g < p_.groups; ++g) {
      const RandomStream stream{config_.dropout.seed, RandomPurpose::Dropout, config_.dropout.module, ordinal_,
                                static_cast<uint32_t>(kv * p_.groups + g)};
      for (int64_t r = 0; r < std::min(block.rows, length_ - block.first); ++r) {
        const auto query = static_cast<uint64_t>(block.first + r);
        stream.fill(words_.data() + (g * block.rows + r) * block.keys, query * uint64_t{kMaxDocument}, query + 1);
      }
    }
    args.words = words_.data();
    args.drop_below = static_cast<uint32_t>(config_.dropout.probability * 0x1p32);
    args.keep_scale = 1 / (1 - config_.dropout.probability);
  }

  const Problem& p_;
  const AttentionConfig& config_;
  uint64_t ordinal_;
  int64_t start_, length_, padded_;
  std::vector<Block> blocks_;
  int64_t block_rows_;
  Buffer k_, v_;  ///< [padded, D]
  Buffer q_, o_;  ///< [G * B, D]
  Buffer s_;      ///< [G * B, C]
  Buffer row_;
  std::vector<uint32_t> words_;
};

}  // namespace

AttentionSaved attention_forward(const at::Tensor& q_TND, const at::Tensor& k_TKD, const at::Tensor& v_TKD,
                                 std::span<const int64_t> doc_starts, const AttentionConfig& config) {
  const Problem p = check(q_TND, k_TKD, v_TKD, doc_starts, config);
  AttentionSaved saved{at::empty({p.tokens, p.heads, p.width}, p.options),
                       at::empty({p.heads, p.tokens}, p.acc_options)};
  const Heads q(q_TND, "q_TND"), k(k_TKD, "k_TKD"), v(v_TKD, "v_TKD"), o(saved.o_TND, "o_TND");
  for (size_t d = 0; d + 1 < doc_starts.size(); ++d) {
    Document(p, doc_starts, d, config).forward(q, k, v, o, saved.lse_NT);
  }
  return saved;
}

AttentionGrads attention_backward(const at::Tensor& do_TND, const at::Tensor& q_TND, const at::Tensor& k_TKD,
                                  const at::Tensor& v_TKD, const AttentionSaved& saved,
                                  std::span<const int64_t> doc_starts, const AttentionConfig& config) {
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
  const at::Tensor delta_NT = at::empty({p.heads, p.tokens}, p.acc_options);
  cpu::table().head_dots(p.dtype, d_o.data, d_o.token_stride, o.data, o.token_stride, p.tokens, p.heads, p.width,
                         delta_NT.mutable_data_ptr(), p.tokens);
  for (size_t d = 0; d + 1 < doc_starts.size(); ++d) {
    Document(p, doc_starts, d, config).backward(d_o, q, k, v, saved.lse_NT, delta_NT, dq, dk, dv);
  }
  return grads;
}

}  // namespace lockstep::kernels
