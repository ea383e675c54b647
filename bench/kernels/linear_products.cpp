// Forward and input gradient of linear layers in bf16: what kernels/linear.h does against at::mm, in turns, so that both
// meet the machine in the same state. Operands change from call to call, as many as the second cache does not hold.
#include "bench.h"

#include "lockstep/kernels/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace lockstep::bench {
namespace {

struct Shape {
  int64_t rows, inputs, outputs;
};

double seconds_of(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median_of(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<int64_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

struct Pair {
  double own, aten;  ///< seconds, medians
  double ratio;      ///< of aten to own, the median of the turns
};

using Product = std::function<at::Tensor(size_t copy)>;

Pair in_turns(const Product& own, const Product& aten, size_t copies, double flops) {
  const size_t turns = std::clamp<size_t>(static_cast<size_t>(6e9 / flops), 7, 201);
  std::vector<double> own_s, aten_s, ratios;
  for (size_t turn = 0; turn < turns + 1; ++turn) {
    const double a = seconds_of([&] { own(turn % copies); });
    const double b = seconds_of([&] { aten((turn + copies / 2) % copies); });
    if (turn == 0) continue;  // code is generated, memory taken
    own_s.push_back(a);
    aten_s.push_back(b);
    ratios.push_back(b / a);
  }
  return {median_of(own_s), median_of(aten_s), median_of(ratios)};
}

/// Against float64 on a few rows: |error| of one result is at most a rounding to bf16 and a chain of float32.
void verify(const at::Tensor& x, const at::Tensor& w, const at::Tensor& dy) {
  const int64_t rows = std::min<int64_t>(x.size(0), 70);
  const auto wide = [&](const at::Tensor& t) { return t.narrow(0, 0, std::min(rows, t.size(0))).to(at::kDouble); };
  const at::Tensor w64 = w.to(at::kDouble);
  require_close("linear_forward", kernels::linear_forward(x, w).narrow(0, 0, rows), at::mm(wide(x), w64.t()), 0x1p-8);
  require_close("linear_backward_input", kernels::linear_backward_input(dy, w).narrow(0, 0, rows),
                at::mm(wide(dy), w64), 0x1p-8);
}

void bench_shape(const Shape& shape) {
  const auto& [rows, inputs, outputs] = shape;
  const int64_t bytes = 2 * (rows * (inputs + outputs) + inputs * outputs);
  const auto copies = static_cast<size_t>(std::clamp<int64_t>((int64_t{48} << 20) / bytes, 1, 16));
  std::vector<at::Tensor> x, w, dy;
  for (size_t i = 0; i < copies; ++i) {
    x.push_back(random({rows, inputs}, at::kBFloat16, 3 * i + 1));
    w.push_back(random({outputs, inputs}, at::kBFloat16, 3 * i + 2));
    dy.push_back(random({rows, outputs}, at::kBFloat16, 3 * i + 3));
  }
  verify(x[0], w[0], dy[0]);
  const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(inputs * outputs);
  const Pair forward = in_turns([&](size_t i) { return kernels::linear_forward(x[i], w[i]); },
                                [&](size_t i) { return at::mm(x[i], w[i].t()); }, copies, flops);
  const Pair backward = in_turns([&](size_t i) { return kernels::linear_backward_input(dy[i], w[i]); },
                                 [&](size_t i) { return at::mm(dy[i], w[i]); }, copies, flops);
  const auto cell = [&](const Pair& pair) {
    return fmt::format("{:>9.0f}{:>9.0f}{:>9.2f}", flops / pair.own * 1e-9, flops / pair.aten * 1e-9, pair.ratio);
  };
  fmt::print("{:>6}{:>14}  {}  {}\n", rows, fmt::format("{} -> {}", inputs, outputs), cell(forward), cell(backward));
}

}  // namespace

void bench_linear_products() {
  fmt::print("\nlinear layers, bfloat16: GFLOP/s, and at::mm's time as a multiple of our own\n");
  fmt::print("{:>6}{:>14}  {:>27}  {:>27}\n", "rows", "layer", "forward: own, at::mm, ratio", "dx: own, at::mm, ratio");
  for (const int64_t rows : {50, 128, 512}) {
    for (const auto& [inputs, outputs] : {std::pair<int64_t, int64_t>{384, 384}, {384, 1536}, {1536, 384}}) {
      bench_shape({rows, inputs, outputs});
    }
  }
  for (const int64_t rows : {100, 215, 500, 800, 1024}) {
    for (const auto& [inputs, outputs] :
         {std::pair<int64_t, int64_t>{576, 576}, {576, 192}, {576, 1536}, {1536, 576}}) {
      bench_shape({rows, inputs, outputs});
    }
  }
  for (const int64_t rows : {200, 512, 1024}) bench_shape({rows, 576, 49152});
}

}  // namespace lockstep::bench
