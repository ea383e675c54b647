#pragma once

#include <cstdint>

/// When a run logs, evaluates and saves: the rules of transformers 5.24 (trainer_callback.py, DefaultFlowCallback) as
/// pure functions. Torch-free.
namespace lockstep::train {

enum class Strategy { No, Steps, Epoch, Best };  ///< Best: of saving alone

struct FlowOptions {
  Strategy logging = Strategy::Steps, evaluation = Strategy::No, saving = Strategy::No;
  int64_t logging_steps = 500, eval_steps = 500, save_steps = 500;  ///< in updates; see steps_of()
  bool logging_first_step = false;
  double eval_delay = 0;           ///< updates or epochs, as the evaluation strategy counts
};

/// A number of steps as the flags give it: below 1 a share of all updates, rounded up.
int64_t steps_of(double value, int64_t total_updates);

struct FlowPoint {
  int64_t update = 0;              ///< just done, from 1
  int64_t total_updates = 0;
  bool ends_epoch = false;         ///< the last update of an epoch, or of the run
  double epoch = 0;                ///< as logged after this update
};

/// What follows an update, in this order. A best model (Strategy::Best) is saved by who knows the metric.
struct FlowDecision {
  bool log = false, evaluate = false, save = false;
};
FlowDecision after_update(const FlowOptions& options, const FlowPoint& point);

}  // namespace lockstep::train
