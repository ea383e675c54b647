// Weight gradients of MiniLM and SmolLM2-135M into the exact sums: our product against at::mm, alone and with adding.
#include "bench.h"

#include "lockstep/kernels/linear.h"
#include "lockstep/tensor/grad_accumulator.h"
#include "lockstep/tensor/token_product.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

namespace lockstep::bench {
namespace {

using tensor::GradAccumulator;
using tensor::TokenProductPath;

std::vector<TokenProductPath> running_paths() {
  std::vector<TokenProductPath> out;
  for (const auto path : {TokenProductPath::Amx, TokenProductPath::Avx512Bf16, TokenProductPath::Avx2}) {
    if (runs(path)) out.push_back(path);
  }
  return out;
}

/// Seconds of each, the best of many rounds. In turns: a shared machine's speed changes from one second to the next.
std::vector<double> best_in_turns(const std::vector<std::function<void()>>& calls) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> best(calls.size(), 1e9);
  for (int round = 0; round < 25; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const auto start = Clock::now();
      calls[i]();
      best[i] = std::min(best[i], std::chrono::duration<double>(Clock::now() - start).count());
    }
  }
  return best;
}

struct Gradient {
  at::Tensor dy_TO, x_TI;

  at::Tensor with(TokenProductPath path) const {
    at::Tensor dw_OI = at::empty({dy_TO.size(1), x_TI.size(1)}, at::TensorOptions().dtype(at::kFloat));
    auto* out = dw_OI.mutable_data_ptr<float>();
    multiply(path,
             [&](int64_t first, std::span<const float> band) { std::copy(band.begin(), band.end(), out + first); });
    return dw_OI;
  }

  void multiply(TokenProductPath path, const tensor::TakeBand& take) const {
    tensor::token_product({.dy_TO = static_cast<const uint16_t*>(dy_TO.const_data_ptr()),
                           .x_TI = static_cast<const uint16_t*>(x_TI.const_data_ptr()),
                           .tokens = dy_TO.size(0),
                           .outputs = dy_TO.size(1),
                           .inputs = x_TI.size(1)},
                          take, path);
  }
};

/// The sums of as many matrices in turn as no cache holds, as in a backward pass.
class Sums {
 public:
  Sums(int64_t outputs, int64_t inputs)
      : layout_(specs(outputs, inputs)), grads_(layout_, tensor::Reduction::Exact, 1) {
    const std::vector<int> scale_bits(kMatrices, tensor::kDefaultScaleBits);
    grads_.begin_update(scale_bits, std::vector<int64_t>(kMatrices, 1 << 20));
  }
  template <class Add>
  void add(const Add& add_one) {
    add_one(grads_, next_);
    next_ = (next_ + 1) % kMatrices;
  }

 private:
  static constexpr int kMatrices = 16;
  static std::vector<tensor::ParamSpec> specs(int64_t outputs, int64_t inputs) {
    std::vector<tensor::ParamSpec> out;
    for (int i = 0; i < kMatrices; ++i) {
      out.push_back({.name = fmt::format("w{}", i), .shape = {outputs, inputs}, .block = 0});
    }
    return out;
  }

  tensor::ParamLayout layout_;
  GradAccumulator grads_;
  int next_ = 0;
};

void bench_shape(int64_t tokens, int64_t outputs, int64_t inputs) {
  const Gradient gradient{random({tokens, outputs}, at::kBFloat16, 1), random({tokens, inputs}, at::kBFloat16, 2)};
  const auto& [dy, x] = gradient;
  const at::Tensor wanted = kernels::linear_backward_weight(dy.to(at::kDouble), x.to(at::kDouble));
  for (const auto path : running_paths()) require_close("token_product", gradient.with(path), wanted, 0x1p-21);

  Sums sums(outputs, inputs);
  std::vector<std::function<void()>> calls{
      [&] { kernels::linear_backward_weight(dy, x); },
      [&] {
        sums.add([&](GradAccumulator& grads, int id) { grads.add(id, kernels::linear_backward_weight(dy, x)); });
      },
      [&] { sums.add([&](GradAccumulator& grads, int id) { grads.add_product(id, dy, x); }); }};
  for (const auto path : running_paths()) {
    calls.push_back([&gradient, path] { gradient.multiply(path, [](int64_t, std::span<const float>) {}); });
  }
  const std::vector<double> seconds = best_in_turns(calls);
  const double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(outputs * inputs);
  fmt::print("{:>6}{:>12}{:>10.0f}{:>10.0f}{:>10.0f}{:>8.2f}", tokens, fmt::format("{}x{}", outputs, inputs),
             flops / seconds[0] * 1e-9, seconds[1] * 1e6, seconds[2] * 1e6, seconds[1] / seconds[2]);
  for (size_t i = 3; i < seconds.size(); ++i) {
    fmt::print("{:>18}", fmt::format("{:.0f} ({:.2f})", flops / seconds[i] * 1e-9, seconds[0] / seconds[i]));
  }
  fmt::print("\n");
}

}  // namespace

void bench_weight_gradients() {
  fmt::print("\nweight gradients, bfloat16: GFLOP/s (times at::mm's), and microseconds with the adding\n");
  fmt::print("{:>6}{:>12}{:>10}{:>10}{:>10}{:>8}{:>18}{:>18}{:>18}\n", "tokens", "shape", "at::mm", "+ add",
             "own + add", "ratio", "AMX", "AVX512-BF16", "AVX2");
  for (const int64_t tokens : {212, 1024, 2048}) {
    for (const auto& [outputs, inputs] :
         {std::pair<int64_t, int64_t>{384, 384}, {384, 1536}, {1536, 384}, {576, 576}, {576, 1536}}) {
      bench_shape(tokens, outputs, inputs);
    }
  }
}

}  // namespace lockstep::bench
