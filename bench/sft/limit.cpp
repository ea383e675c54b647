#include "bench_sft.h"

#include "lockstep/base/deadline.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/loss/lm_head.h"
#include "lockstep/model/config.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <barrier>
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

/// Seconds for the three products of one shape.
double time_products(const Operands& operands) {
  const Clock::time_point start = Clock::now();
  kernels::linear_forward(operands.x, operands.w);
  kernels::linear_backward_input(operands.dy, operands.w);
  kernels::linear_backward_weight(operands.dy, operands.x);
  return seconds_since(start);
}

/// Median seconds per grain on one thread while the others do the same.
double grain_seconds(const std::vector<Operands>& all, double budget_s) {
  const Deadline deadline = Deadline::in(Milliseconds(static_cast<int64_t>(1e3 * budget_s)));
  std::vector<std::vector<double>> times(all.size());
  for (const Operands& operands : all) time_products(operands);
  do {
    for (size_t i = 0; i < all.size(); ++i) times[i].push_back(time_products(all[i]));
  } while (!deadline.passed());
  double sum = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    sum += times[i][times[i].size() / 2] * static_cast<double>(all[i].shape.repeats);
  }
  return sum;
}

}  // namespace

double matrix_limit(const LimitOptions& options) {
  const model::DecoderConfig config = model::read_decoder_config(options.model);
  const at::ScalarType dtype = at::kBFloat16;
  std::vector<double> seconds(static_cast<size_t>(options.threads));
  std::barrier ready(options.threads);
  {
    std::vector<std::jthread> threads;
    for (double& mine : seconds) {
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
  double tokens_per_second = 0;
  for (const double mine : seconds) tokens_per_second += static_cast<double>(options.tokens) / mine;
  return tokens_per_second;
}

}  // namespace lockstep::bench
