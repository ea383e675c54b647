#include "lockstep/kernels/decode.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/elementwise.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <vector>

namespace lockstep::kernels {
namespace {

/// Weights of a part of the outputs: below this a thread's wake-up costs more than it saves.
constexpr int64_t kPartWeights = 1 << 16;
constexpr int64_t kOutputUnit = 64;

at::Tensor widened(const at::Tensor& x) {
  const at::ScalarType acc = detail::accumulator_of(x.scalar_type());
  return x.scalar_type() == acc ? x : convert(x, acc);
}

}  // namespace

at::Tensor row_product(const at::Tensor& x_BI, const at::Tensor& w, const at::Tensor& b_O, bool transposed, ThreadTeam& team) {
  detail::require_contiguous(x_BI, "row_product: x_BI");
  detail::require_contiguous(w, "row_product: w");
  detail::require_dtype(w, x_BI.scalar_type(), "row_product: w");
  LS_CHECK(x_BI.dim() == 2 && w.dim() == 2 && w.size(transposed ? 0 : 1) == x_BI.size(1), "row_product: shapes do not fit");
  const at::Tensor x = widened(x_BI);
  const int64_t outputs = w.size(transposed ? 1 : 0);
  at::Tensor out = at::empty({x.size(0), outputs}, x.options());
  cpu::RowProductArgs args{};
  args.dtype = detail::dtype_of(w, "row_product: w");
  args.x = x.const_data_ptr();
  args.w = w.const_data_ptr();
  if (b_O.defined()) {
    detail::require_dtype(b_O, x.scalar_type(), "row_product: b_O");
    args.bias = b_O.const_data_ptr();
  }
  args.out = out.mutable_data_ptr();
  args.rows = x.size(0);
  args.inputs = x.size(1);
  args.outputs = outputs;
  args.transposed = transposed;
  const int64_t wanted = std::clamp<int64_t>(w.numel() / kPartWeights, 1, 4 * int64_t{team.size()});
  const int64_t part = (outputs / wanted + kOutputUnit) / kOutputUnit * kOutputUnit;
  const auto run = [&](size_t item, int) {
    cpu::RowProductArgs mine = args;
    mine.first = static_cast<int64_t>(item) * part;
    mine.last = std::min(outputs, mine.first + part);
    cpu::table().row_product(mine);
  };
  const auto parts = static_cast<size_t>((outputs + part - 1) / part);
  if (parts == 1 || team.size() == 1) {
    for (size_t item = 0; item < parts; ++item) run(item, 0);
  } else {
    team.run(parts, run);
  }
  return x.is_same(x_BI) ? out : convert(out, x_BI.scalar_type());
}

at::Tensor token_attention(const at::Tensor& q_BND, std::span<const CachedTokens> cached, const AttentionConfig& config,
                           ThreadTeam& team) {
  const int64_t B = q_BND.size(0), N = q_BND.size(1), D = q_BND.size(2);
  LS_CHECK(static_cast<int64_t>(cached.size()) == B && config.causal, "token_attention: {} caches for {} tokens", cached.size(), B);
  at::Tensor o_BND = at::empty({B, N, D}, q_BND.options());
  const at::ScalarType acc = detail::accumulator_of(q_BND.scalar_type());
  const auto run = [&](size_t item, int) {
    const CachedTokens& tokens = cached[item];
    const int64_t K = tokens.k_CKD.size(1), groups = N / K;
    const at::Tensor scratch = at::empty({tokens.length + 16}, q_BND.options().dtype(acc));
    cpu::TokenAttentionArgs args{};
    args.dtype = detail::dtype_of(q_BND, "token_attention: q_BND");
    args.first = config.window > 0 ? std::max<int64_t>(0, tokens.length - config.window) : 0;
    args.keys = tokens.length;
    args.stride = K * D;
    args.width = D;
    args.groups = groups;
    args.scale = config.scale;
    args.softcap = config.softcap;
    args.scratch = scratch.mutable_data_ptr();
    const auto bytes = static_cast<int64_t>(q_BND.element_size());
    for (int64_t kv = 0; kv < K; ++kv) {
      const auto b = static_cast<int64_t>(item);
      args.q = static_cast<const char*>(q_BND.const_data_ptr()) + (b * q_BND.stride(0) + kv * groups * D) * bytes;
      args.k = static_cast<const char*>(tokens.k_CKD.const_data_ptr()) + kv * D * bytes;
      args.v = static_cast<const char*>(tokens.v_CKD.const_data_ptr()) + kv * D * bytes;
      args.o = static_cast<char*>(o_BND.mutable_data_ptr()) + (b * N + kv * groups) * D * bytes;
      cpu::table().token_attention(args);
    }
  };
  if (B == 1 || team.size() == 1) {
    for (size_t item = 0; item < cached.size(); ++item) run(item, 0);
  } else {
    team.run(cached.size(), run);
  }
  return o_BND;
}

}  // namespace lockstep::kernels
