// Products of SmolLM2-135M: every linear layer's forward, input gradient and weight gradient.
#include "bench.h"

#include "lockstep/kernels/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

namespace lockstep::bench {

void bench_linear(at::ScalarType dtype, int64_t tokens) {
  using namespace kernels;
  struct Layer {
    const char* name;
    int64_t inputs, outputs;
  };
  const double limit = product_limit(dtype);
  fmt::print("\nlinear, {} tokens, {}; limit {:.0f} GFLOP/s\n", tokens, c10::toString(dtype), limit * 1e-9);
  fmt::print("{:<14}{:>18}{:>18}{:>18}{:>18}\n", "layer", "forward", "input gradient", "weight gradient",
             "its transpose");
  for (const Layer& layer : {Layer{"query, output", 576, 576}, Layer{"key, value", 576, 192},
                             Layer{"gate, up", 576, 1536}, Layer{"down", 1536, 576}, Layer{"head", 576, 49152}}) {
    const int64_t rows = layer.outputs > 10000 ? std::min<int64_t>(tokens, 512) : tokens;
    const at::Tensor x = random({rows, layer.inputs}, dtype, 1);
    const at::Tensor w = random({layer.outputs, layer.inputs}, dtype, 2);
    const at::Tensor dy = random({rows, layer.outputs}, dtype, 3);
    const double bound = dtype == at::kBFloat16 ? 0x1p-8 : 0x1p-18;
    if (rows < 300) {
      require_close("linear_forward", linear_forward(x, w), linear_forward(x.to(at::kDouble), w.to(at::kDouble)),
                    bound);
      require_close("linear_backward_weight", linear_backward_weight(dy, x),
                    linear_backward_weight(dy.to(at::kDouble), x.to(at::kDouble)), bound);
    }
    const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(layer.inputs * layer.outputs);
    const auto cell = [&](const std::function<void()>& call) {
      const double rate = flops / best_seconds(call);
      return fmt::format("{:.0f} ({:.0f} %)", rate * 1e-9, 100 * rate / limit);
    };
    fmt::print("{:<14}{:>18}{:>18}{:>18}{:>18}\n", layer.name, cell([&] { linear_forward(x, w); }),
               cell([&] { linear_backward_input(dy, w); }), cell([&] { linear_backward_weight(dy, x); }),
               cell([&] { at::mm(x.t(), dy); }));
  }
}

}  // namespace lockstep::bench
