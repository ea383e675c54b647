// The memory-bound kernels at SmolLM2-135M's shapes for a grain of 2,048 tokens; bytes read plus written.
#include "bench.h"

#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/kernels/norm.h"
#include "lockstep/kernels/rope.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

namespace lockstep::bench {
namespace {

void line(const char* name, int64_t bytes, const std::function<void()>& call) {
  const double rate = static_cast<double>(bytes) / best_seconds(call);
  fmt::print("{:<24}{:>8.1f} MB{:>8.1f} GB/s  {:>4.0f} % of a copy\n", name, static_cast<double>(bytes) * 1e-6,
             rate * 1e-9, 100 * rate / copy_limit(bytes));
}

}  // namespace

void bench_pointwise(at::ScalarType dtype) {
  using namespace kernels;
  constexpr int64_t kTokens = 2048, kHidden = 576, kMlp = 1536, kVocab = 49152, kChunk = 128;
  const int64_t size = static_cast<int64_t>(c10::elementSize(dtype));
  fmt::print("\npointwise, {}\n", c10::toString(dtype));

  at::Tensor x = random({kTokens, kHidden}, at::kFloat, 1);
  const at::Tensor w = random({kHidden}, at::kFloat, 2);
  const at::Tensor delta = random({kTokens, kHidden}, dtype, 3) * 1e-3;
  const auto norm = rms_norm_forward(x, w, 1e-5, dtype);
  require_close("rms_norm_forward", norm.y_RN,
                x.to(at::kDouble) / (x.to(at::kDouble).pow(2).mean(1, true) + 1e-5).sqrt() * w.to(at::kDouble), 0x1p-8);
  const int64_t cells = kTokens * kHidden;
  line("rms_norm_forward", cells * (4 + size), [&] { rms_norm_forward(x, w, 1e-5, dtype); });
  line("add_rms_norm_forward", cells * (8 + 2 * size), [&] { add_rms_norm_forward(x, delta, w, 1e-5, dtype); });
  at::Tensor dx = at::zeros({kTokens, kHidden}, at::kFloat);
  line("rms_norm_backward", cells * (12 + size), [&] { rms_norm_backward(delta, x, norm.rstd_R, w, dx); });

  at::Tensor frequencies = at::zeros({32}, at::kDouble);
  const RopeTable table = rope_table(frequencies, kTokens, 1, dtype);
  at::Tensor q = random({kTokens, 9, 64}, dtype, 4);
  const at::Tensor positions = at::zeros({kTokens}, at::kInt);
  line("rope_forward", cells * 2 * size, [&] { rope_forward(q, positions, table); });

  const at::Tensor gate = random({kTokens, kMlp}, dtype, 5);
  const at::Tensor up = random({kTokens, kMlp}, dtype, 6);
  const at::Tensor wide = gate.to(at::kDouble);
  require_close("swiglu_forward", swiglu_forward(gate, up), wide / ((-wide).exp() + 1) * up.to(at::kDouble), 0x1p-8);
  line("swiglu_forward", kTokens * kMlp * 3 * size, [&] { swiglu_forward(gate, up); });
  line("swiglu_backward", kTokens * kMlp * 5 * size, [&] { swiglu_backward(up, gate, up); });

  at::Tensor logits = random({kChunk, kVocab}, dtype, 7);
  const at::Tensor targets = at::zeros({kChunk}, at::kInt);
  const at::Tensor wide_logits = logits.to(at::kDouble);
  require_close("cross_entropy", cross_entropy(logits, targets, 1, false).nll_C,
                wide_logits.logsumexp(1) - wide_logits.select(1, 0), 1e-5);
  line("cross_entropy, loss only", kChunk * kVocab * size, [&] { cross_entropy(logits, targets, 1, false); });
  line("cross_entropy", kChunk * kVocab * 2 * size, [&] { cross_entropy(logits, targets, 1, true); });

  const at::Tensor embedding = random({kVocab, kHidden}, dtype, 8);
  const at::Tensor tokens = at::zeros({kTokens}, at::kInt);
  line("embedding_forward", cells * (4 + size), [&] { embedding_forward(tokens, embedding, at::kFloat); });
  line("convert to bf16", cells * 6, [&] { convert(x, at::kBFloat16); });
  line("add_into", cells * (8 + size), [&] { add_into(dx, delta); });
}

}  // namespace lockstep::bench
