// Attention: lockstep's path for the dtype, beside the path of products and libtorch's flash attention. MiniLM's (12
// heads of width 32, whole documents, dropout) and SmolLM2-135M's (9 query heads over 3 key/value heads of width 64,
// causal). libtorch's has no dropout: where lockstep drops, libtorch is timed without.
#include "bench.h"

#include "lockstep/kernels/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <fmt/format.h>

#include <tuple>

namespace lockstep::bench {
namespace {

using namespace kernels;

struct AttentionCase {
  int64_t docs, length, heads, kv_heads, width;
  bool causal;
  double dropout;
};

struct AttentionOperands {
  at::Tensor q, k, v, d_o;
  std::vector<int64_t> starts;
  std::vector<uint64_t> ordinals;
};

AttentionOperands operands_of(const AttentionCase& c, at::ScalarType dtype) {
  const int64_t tokens = c.docs * c.length;
  AttentionOperands x{random({tokens, c.heads, c.width}, dtype, 1), random({tokens, c.kv_heads, c.width}, dtype, 2),
                      random({tokens, c.kv_heads, c.width}, dtype, 3), random({tokens, c.heads, c.width}, dtype, 4),
                      {0}, {}};
  for (int64_t d = 0; d < c.docs; ++d) {
    x.starts.push_back((d + 1) * c.length);
    x.ordinals.push_back(static_cast<uint64_t>(d));
  }
  return x;
}

/// [docs, heads, length, width], key/value heads repeated, as libtorch wants it.
struct LibtorchOperands {
  at::Tensor q, k, v, d_o, o, lse;
  bool causal;
  double scale;
};

LibtorchOperands libtorch_operands(const AttentionCase& c, const AttentionOperands& x, double scale) {
  const auto heads = [&](const at::Tensor& t) {
    const at::Tensor split = t.reshape({c.docs, c.length, t.size(1), c.width}).transpose(1, 2).contiguous();
    return split.repeat_interleave(c.heads / t.size(1), 1);
  };
  LibtorchOperands l{heads(x.q), heads(x.k), heads(x.v), heads(x.d_o), {}, {}, c.causal, scale};
  std::tie(l.o, l.lse) =
      at::_scaled_dot_product_flash_attention_for_cpu(l.q, l.k, l.v, 0.0, c.causal, {}, scale);
  return l;
}

/// Seconds of the forward and of the backward pass.
struct Times {
  double forward, backward;
};

Times time_lockstep(const AttentionOperands& x, const AttentionConfig& config) {
  const AttentionSaved saved = attention_forward(x.q, x.k, x.v, x.starts, config);
  return {best_seconds([&] { attention_forward(x.q, x.k, x.v, x.starts, config); }),
          best_seconds([&] { attention_backward(x.d_o, x.q, x.k, x.v, saved, x.starts, config); })};
}

Times time_libtorch(const LibtorchOperands& l) {
  return {best_seconds([&] {
            at::_scaled_dot_product_flash_attention_for_cpu(l.q, l.k, l.v, 0.0, l.causal, {}, l.scale);
          }),
          best_seconds([&] {
            at::_scaled_dot_product_flash_attention_for_cpu_backward(l.d_o, l.q, l.k, l.v, l.o, l.lse, 0.0, l.causal,
                                                                     {}, l.scale);
          })};
}

void verify(const AttentionCase& c, const AttentionOperands& x, const LibtorchOperands& l, AttentionConfig config) {
  config.dropout = {};
  const at::Tensor o = attention_forward(x.q, x.k, x.v, x.starts, config).o_TND;
  require_close("attention_forward", o.reshape({c.docs, c.length, c.heads, c.width}).transpose(1, 2), l.o,
                x.q.scalar_type() == at::kBFloat16 ? 0x1p-6 : 0x1p-18);
}

void bench_case(const AttentionCase& c, at::ScalarType dtype, double limit) {
  const AttentionOperands x = operands_of(c, dtype);
  const AttentionConfig config{
      .scale = 0.125, .dropout = {c.dropout, 3, 5, x.ordinals}, .causal = c.causal};
  AttentionConfig products = config;
  products.path = AttentionPath::Products;
  const LibtorchOperands l = libtorch_operands(c, x, config.scale);
  verify(c, x, l, config);
  const Times own = time_lockstep(x, config), by_products = time_lockstep(x, products), libtorch = time_libtorch(l);

  const double length = static_cast<double>(c.length), documents = static_cast<double>(c.docs * c.heads);
  const double pairs = documents * (c.causal ? length * (length + 1) / 2 : length * length);
  const double flops = 4.0 * pairs * static_cast<double>(c.width);
  const auto rate = [&](double work, double seconds) {
    return fmt::format("{:.0f} ({:.0f} %)", work / seconds * 1e-9, 100 * work / seconds / limit);
  };
  const auto ratio = [&](const Times& other) {
    return fmt::format("{:.1f} {:.1f} {:.1f}", other.forward / own.forward, other.backward / own.backward,
                       (other.forward + other.backward) / (own.forward + own.backward));
  };
  fmt::print("{:<34}{:>14}{:>14}{:>20}{:>20}\n",
             fmt::format("{} x {}, {}/{} x {}, {}{}", c.docs, c.length, c.heads, c.kv_heads, c.width,
                         c.causal ? "causal" : "whole", c.dropout > 0 ? ", drop" : ""),
             rate(flops, own.forward), rate(2.5 * flops, own.backward), ratio(by_products), ratio(libtorch));
}

}  // namespace

void bench_attention(at::ScalarType dtype) {
  const double limit = product_limit(dtype);
  fmt::print("\nattention, {}, GFLOP/s of what is not masked; limit {:.0f}. Ratios: forward, backward, both\n",
             c10::toString(dtype), limit * 1e-9);
  fmt::print("{:<34}{:>14}{:>14}{:>20}{:>20}\n", "documents, heads, width", "forward", "backward", "products / own",
             "libtorch / own");
  bench_case({4, 53, 12, 12, 32, false, 0.1}, dtype, limit);
  bench_case({4, 53, 12, 12, 32, false, 0}, dtype, limit);
  bench_case({4, 215, 12, 12, 32, false, 0.1}, dtype, limit);
  for (const int64_t length : {32, 64, 128, 215, 512, 1024, 2048, 4096}) {
    bench_case({1, length, 9, 3, 64, true, 0}, dtype, limit);
  }
  bench_case({1, 1024, 8, 2, 128, true, 0}, dtype, limit);
}

}  // namespace lockstep::bench
