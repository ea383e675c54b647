#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

/// What `scripts/bench sft` measures beside the real command, inside one set of processes: on a machine whose speed
/// drifts, only neighbours in time can be compared.
namespace lockstep::bench {

struct LimitOptions {
  at::ScalarType dtype = at::kBFloat16;
  std::string model;          ///< folder; only its config.json is read
  int64_t tokens = 860;       ///< of a grain
  int threads = 2;            ///< that multiply at the same time, each its own operands
  double seconds = 1;         ///< how long to measure
};
/// Tokens per second if an update were nothing but its matrix products: forward, input gradient and weight gradient of
/// every linear layer and of the head.
struct MatrixLimit {
  double best = 0;      ///< each product by whichever is faster, libtorch's or lockstep's
  double libtorch = 0;  ///< all by libtorch's
};
MatrixLimit matrix_limit(const LimitOptions& options);

struct PairOptions {
  at::ScalarType dtype = at::kBFloat16;
  std::string model, data;
  int64_t global_batch = 32;
  int64_t max_length = 1024;
  int processes = 1;
  int threads = 2;            ///< per process
  int64_t updates = 6;        ///< of each kind, after one to warm up
};
/// Milliseconds per token.
struct Phases {
  double step = 1e300, compute = 1e300, reduce = 1e300, optimizer = 1e300;
};

struct PairResult {
  double exact_over_float32 = 0;   ///< time per token, the fastest update of each kind
  double share_of_matrix_limit = 0;///< tokens/s of exact updates over the best limit measured right after, median
  double matrix_limit = 0;         ///< tokens/s over all processes, median
  double libtorch_limit = 0;       ///< the same with libtorch's products alone
  double tokens_per_second = 0;    ///< of exact updates, median
  Phases exact, float32;           ///< the fastest of each
};
/// Two trainers, one with exact and one with float32 sums, take turns on the same updates; after each turn the limit is
/// measured.
PairResult measure_pairs(const PairOptions& options);

}  // namespace lockstep::bench
