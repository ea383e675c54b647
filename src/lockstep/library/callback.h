#pragma once

#include "lockstep/library/api.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// By name: "eval_loss", "train_runtime" ...
using Metrics = std::map<std::string, double>;

/// Where a run stands. The same on every rank, but for times.
struct TrainerState {
  int64_t global_step = 0;              ///< updates done
  int64_t max_steps = 0;                ///< of the run
  double epoch = 0;
  bool is_world_process_zero = true;
  Metrics logs;                         ///< the last log event: loss (mean since the one before), grad_norm, learning_rate
  Metrics metrics;                      ///< the last evaluation
  std::vector<Metrics> log_history;     ///< both, of this process's life, each with "step" and "epoch"
};

/// What follows the present update. Callbacks may change it; all ranks then do what any of them wants.
struct TrainerControl {
  bool should_training_stop = false;
  bool should_epoch_stop = false;       ///< go on with the next epoch
  bool should_save = false;             ///< has an effect unless save_strategy is no
  bool should_evaluate = false;         ///< has an effect where there is an eval_dataset
  bool should_log = false;
};

/// transformers' TrainerCallback: told of what happens, on every rank, from the thread that called train(). What it throws,
/// train() throws.
class LOCKSTEP_API TrainerCallback {
 public:
  virtual ~TrainerCallback();
  virtual void on_init_end(const TrainerState& /*state*/, TrainerControl& /*control*/) {}
  virtual void on_train_begin(const TrainerState& /*state*/, TrainerControl& /*control*/) {}
  virtual void on_epoch_begin(const TrainerState& /*state*/, TrainerControl& /*control*/) {}
  virtual void on_step_begin(const TrainerState& /*state*/, TrainerControl& /*control*/) {}
  virtual void on_step_end(const TrainerState& /*state*/, TrainerControl& /*control*/) {}
  virtual void on_log(const TrainerState& /*state*/, TrainerControl& /*control*/) {}
  virtual void on_evaluate(const TrainerState& /*state*/, TrainerControl& /*control*/) {}
  virtual void on_save(const TrainerState& /*state*/, TrainerControl& /*control*/) {}
  virtual void on_epoch_end(const TrainerState& /*state*/, TrainerControl& /*control*/) {}
  virtual void on_train_end(const TrainerState& /*state*/, TrainerControl& /*control*/) {}
  virtual void on_predict(const TrainerState& /*state*/, const Metrics& /*metrics*/) {}
};

}  // namespace lockstep
