// Causal attention of SmolLM2-135M (9 query heads over 3 key/value heads of width 64), one document.
#include "bench.h"

#include "lockstep/kernels/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <fmt/format.h>

namespace lockstep::bench {

void bench_attention(at::ScalarType dtype) {
  using namespace kernels;
  constexpr int64_t kHeads = 9, kKvHeads = 3, kWidth = 64;
  const double limit = product_limit(dtype);
  fmt::print("\nattention, {}, GFLOP/s of the unmasked half; limit {:.0f}\n", c10::toString(dtype), limit * 1e-9);
  fmt::print("{:<8}{:>18}{:>18}{:>16}{:>16}\n", "tokens", "forward", "backward", "libtorch fwd", "libtorch bwd");
  for (const int64_t length : {32, 64, 128, 215, 256, 384, 512, 1024, 2048, 4096}) {
    const at::Tensor q = random({length, kHeads, kWidth}, dtype, 1);
    const at::Tensor k = random({length, kKvHeads, kWidth}, dtype, 2);
    const at::Tensor v = random({length, kKvHeads, kWidth}, dtype, 3);
    const at::Tensor d_o = random({length, kHeads, kWidth}, dtype, 4);
    const std::vector<int64_t> starts{0, length};
    const AttentionConfig config{0.125, {}};
    const auto saved = attention_forward(q, k, v, starts, config);

    // libtorch wants [1, N, T, D] and, for its backward, repeated key/value heads.
    const auto heads = [](const at::Tensor& x) { return x.transpose(0, 1).unsqueeze(0).contiguous(); };
    const at::Tensor q4 = heads(q), do4 = heads(d_o);
    const at::Tensor k4 = heads(k).repeat_interleave(kHeads / kKvHeads, 1);
    const at::Tensor v4 = heads(v).repeat_interleave(kHeads / kKvHeads, 1);
    const auto [o4, lse4] = at::_scaled_dot_product_flash_attention_for_cpu(q4, k4, v4, 0.0, true, {}, 0.125);
    require_close("attention_forward", saved.o_TND, o4.squeeze(0).transpose(0, 1),
                  dtype == at::kBFloat16 ? 0x1p-6 : 0x1p-18);

    const double pairs = static_cast<double>(length) * static_cast<double>(length + 1) / 2;
    const double flops = 4.0 * pairs * kWidth * kHeads;
    const auto cell = [&](double work, const std::function<void()>& call) {
      const double rate = work / best_seconds(call);
      return fmt::format("{:.0f} ({:.0f} %)", rate * 1e-9, 100 * rate / limit);
    };
    const at::Tensor o_lib = o4, lse_lib = lse4;
    fmt::print("{:<8}{:>18}{:>18}{:>16}{:>16}\n", length,
               cell(flops, [&] { attention_forward(q, k, v, starts, config); }),
               cell(2.5 * flops, [&] { attention_backward(d_o, q, k, v, saved, starts, config); }),
               cell(flops, [&] { at::_scaled_dot_product_flash_attention_for_cpu(q4, k4, v4, 0.0, true, {}, 0.125); }),
               cell(2.5 * flops, [&] {
                 at::_scaled_dot_product_flash_attention_for_cpu_backward(do4, q4, k4, v4, o_lib, lse_lib, 0.0, true,
                                                                         {}, 0.125);
               }));
  }
}

}  // namespace lockstep::bench
