#include "bench_sft.h"

#include "lockstep/base/deadline.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/loss/lm_head.h"
#include "lockstep/model/config.h"
#include "lockstep/tensor/token_product.h"

#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <functional>
#include <span>
#include <thread>
#include <vector>

namespace lockstep::bench {
namespace {

struct Shape {
  int64_t inputs, outputs, tokens, repeats;  ///< repeats: times per grain
};

std::vector<Shape> shapes_of(const model::DecoderConfig& config, int64_t tokens) {
  const int64_t query = config.num_heads * config.head_dim, key = config.num_kv_heads * config.head_dim;
  const int64_t layers = config.num_layers;
  const int64_t chunk = std::min(tokens, loss::head_chunk_tokens(config.vocab_size));
  return {{config.hidden_size, query, tokens, layers},
          {config.hidden_size, key, tokens, 2 * layers},
          {query, config.hidden_size, tokens, layers},
          {config.hidden_size, config.intermediate_size, tokens, 2 * layers},
          {config.intermediate_size, config.hidden_size, tokens, layers},
          {config.hidden_size, config.vocab_size, chunk, (tokens + chunk - 1) / chunk}};
}

struct Operands {
  Shape shape;
  at::Tensor x, w, dy;
};

/// dy^T x in float32 by lockstep's kernel, and forgotten.
void own_weight_gradient(const Operands& operands) {
  tensor::token_product({.dy_TO = static_cast<const uint16_t*>(operands.dy.const_data_ptr()),
                         .x_TI = static_cast<const uint16_t*>(operands.x.const_data_ptr()),
                         .tokens = operands.shape.tokens,
                         .outputs = operands.shape.outputs,
                         .inputs = operands.shape.inputs},
                        [](int64_t, std::span<const float>) {});
}

/// The three products, libtorch's and then lockstep's.
constexpr size_t kProducts = 3, kCalls = 2 * kProducts;
std::array<std::function<void()>, kCalls> calls_of(const Operands& operands) {
  const bool own = operands.x.scalar_type() == at::kBFloat16;
  return {[&] { at::mm(operands.x, operands.w.t()); },
          [&] { at::mm(operands.dy, operands.w); },
          [&] { at::mm(operands.dy.t(), operands.x); },
          [&] { kernels::linear_forward(operands.x, operands.w); },
          [&] { kernels::linear_backward_input(operands.dy, operands.w); },
          [&, own] { own ? own_weight_gradient(operands) : void(kernels::linear_backward_weight(operands.dy, operands.x)); }};
}

double middle_of(std::vector<double>& values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct GrainSeconds {
  double best = 0, libtorch = 0;
};

/// Median seconds per grain on one thread while the others do the same.
GrainSeconds grain_seconds(const std::vector<Operands>& all, double budget_s) {
  const Deadline deadline = Deadline::in(Milliseconds(static_cast<int64_t>(1e3 * budget_s)));
  std::vector<std::array<std::vector<double>, kCalls>> times(all.size());
  for (int round = 0; round == 0 || !deadline.passed(); ++round) {
    for (size_t i = 0; i < all.size(); ++i) {
      const auto calls = calls_of(all[i]);
      for (size_t call = 0; call < kCalls; ++call) {
        if (round == 0) calls[call]();
        const Clock::time_point start = Clock::now();
        calls[call]();
        times[i][call].push_back(seconds_since(start));
      }
    }
  }
  GrainSeconds sum;
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t product = 0; product < kProducts; ++product) {
      const double libtorch = middle_of(times[i][product]) * static_cast<double>(all[i].shape.repeats);
      const double own = middle_of(times[i][product + kProducts]) * static_cast<double>(all[i].shape.repeats);
      sum.libtorch += libtorch;
      sum.best += std::min(libtorch, own);
    }
  }
  return sum;
}

}  // namespace

MatrixLimit matrix_limit(const LimitOptions& options) {
  const model::DecoderConfig config = model::read_decoder_config(options.model);
  const at::ScalarType dtype = options.dtype;
  std::vector<GrainSeconds> seconds(static_cast<size_t>(options.threads));
  std::barrier ready(options.threads);
  {
    std::vector<std::jthread> threads;
    for (GrainSeconds& mine : seconds) {
      threads.emplace_back([&] {
        std::vector<Operands> all;
        for (const Shape& shape : shapes_of(config, options.tokens)) {
          // The time of a product does not depend on its values; filling takes a moment, random numbers seconds.
          all.push_back({shape, at::full({shape.tokens, shape.inputs}, 0.5, dtype),
                         at::full({shape.outputs, shape.inputs}, 0.25, dtype),
                         at::full({shape.tokens, shape.outputs}, 0.125, dtype)});
        }
        ready.arrive_and_wait();
        mine = grain_seconds(all, options.seconds);
      });
    }
  }
  MatrixLimit limit;
  for (const GrainSeconds& mine : seconds) {
    limit.best += static_cast<double>(options.tokens) / mine.best;
    limit.libtorch += static_cast<double>(options.tokens) / mine.libtorch;
  }
  return limit;
}

}  // namespace lockstep::bench
