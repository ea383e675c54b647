#pragma once

#include "lockstep/model/weights.h"
#include "lockstep/data/examples.h"
#include "lockstep/train/update.h"

#include <cstdint>
#include <string>
#include <vector>

/// One training run of a tiny model on GSM8K chats, with ranks as threads of this process.
namespace lockstep::law {

/// processes x samples per process x accumulation, and threads in each process.
struct Layout {
  int processes = 1;
  int64_t per_device = 1;
  int64_t accumulation = 1;
  int threads = 1;
  int64_t global_batch() const { return processes * per_device * accumulation; }
  std::string text() const;
};

struct Job {
  std::string model;                        ///< folder under tests/data/models/tiny
  at::ScalarType compute_dtype = at::kBFloat16;
  double dropout = 0;
  int64_t num_updates = 20;
  model::Keep keep = model::Keep::All;
  train::GrainOrder grain_order;
  tensor::Reduction reduction = tensor::Reduction::Exact;
  int scale_bits = tensor::kDefaultScaleBits;
  double learning_rate = 1e-3;
  int grain_threads = 1;
  std::string packing;                      ///< the strategy; empty: rows are not packed
  train::TrainProbes probes;                ///< called from every rank
};

/// Everything a run leaves: masters and moments of all parameters, and what was logged.
struct Outcome {
  std::vector<float> state;                 ///< master, exp_avg, exp_avg_sq of every parameter, in layout order
  std::vector<std::vector<uint64_t>> hashes;///< per update, per block
  std::vector<double> losses, grad_norms;
  std::vector<int64_t> grains_per_rank;
  int64_t range_retries = 0;
};

/// A tiny model and its data.
struct Problem {
  model::DecoderConfig config;
  tensor::WeightFiles weights;
  std::vector<data::TokenRow> rows;         ///< 96 chats of at most 64 tokens: lengths differ, some are cut
};
/// With a packing strategy: packed rows of 128 tokens.
Problem load_problem(const std::string& model, const std::string& packing = "");

Outcome run(const Job& job, const Layout& layout);

/// Empty when both are the same to the bit; else what differs first.
std::string difference(const Outcome& a, const Outcome& b);

}  // namespace lockstep::law
