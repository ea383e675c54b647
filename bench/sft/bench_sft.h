#pragma once

#include <cstdint>
#include <string>

/// The two measurements of `scripts/bench sft` that need more than the real command.
namespace lockstep::bench {

struct LimitOptions {
  std::string model;          ///< folder; only its config.json is read
  int64_t tokens = 860;       ///< of a grain
  int threads = 2;            ///< that multiply at the same time, each its own operands
  double seconds = 6;         ///< how long to measure
};
/// Tokens per second if an update were nothing but its matrix products: forward, input gradient and weight gradient of
/// every linear layer and of the head, in bfloat16 (float32 with `fp32`).
double matrix_limit(const LimitOptions& options, bool fp32);

struct PairOptions {
  std::string model, data;
  int64_t global_batch = 32;
  int64_t max_length = 1024;
  int processes = 1;
  int threads = 2;            ///< per process
  int64_t updates = 6;        ///< of each kind, after one to warm up
};
/// Time per update with exact sums over that with float32 sums: two trainers take turns on the same updates in the same
/// processes, the median of the ratios is returned.
double exact_over_float32(const PairOptions& options);

}  // namespace lockstep::bench
