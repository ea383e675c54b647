#pragma once

#include "lockstep/recipes/setup.h"
#include "lockstep/train/plan.h"
#include "lockstep/train/update.h"

#include <string>
#include <vector>

namespace lockstep::recipes {

/// What the start-up report says about the run besides the data.
struct RunFacts {
  std::string model_folder = {};
  std::string architecture = {};
  int64_t num_layers = 0;
  int64_t num_parameters = 0;
  at::ScalarType compute_dtype = at::kBFloat16;
  Batch batch = {};
  int64_t threads = 1;             ///< per process
  int grain_threads = 1;           ///< of them, per grain
  int64_t total_updates = 0, updates_per_epoch = 0;
  int64_t typical_grains = 0;      ///< of the first update
  double balance = 1;              ///< of the first update over all threads
  std::string activations = {};         ///< what is kept, and why
  std::string output_folder = {}, saved_dtype = {};
};

/// Samples the first updates' plans: grains and balance over `workers` = processes x threads.
struct BalanceReport {
  int64_t num_grains = 0;
  double balance = 1;
  int64_t better_min_grains = 0;   ///< the --min_grains that reaches 95 %, or 0 when none is needed or helps
};
BalanceReport report_balance(const std::vector<train::SampleSize>& sizes, const data::Order& order,
                             train::PlanOptions options, int64_t workers);

/// Lines for the console: the model, the data, the batch, the grid, memory and where the result goes.
/// `data`: the lines of its report.
std::vector<std::string> start_report(const RunFacts& facts, const std::vector<std::string>& data,
                                      const BalanceReport& balance);

/// The same with what the trainer knows filled in.
std::vector<std::string> start_report(RunFacts facts, const train::Trainer& trainer, const std::vector<std::string>& data);

}  // namespace lockstep::recipes
