#pragma once

#include "lockstep/comm/communicator.h"
#include "lockstep/train/flow.h"
#include "lockstep/train/metrics.h"
#include "lockstep/train/update.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

/// A whole run: update after update, with logging, evaluation and saving where they are due.
namespace lockstep::train {

/// In the order they are shown; those of an evaluation have its prefix ("eval_loss").
using NamedMetrics = std::vector<std::pair<std::string, double>>;

/// Where a run stands. The same on every rank, but for times.
struct LoopState {
  int64_t update = 0;                   ///< done so far: transformers' global_step
  int64_t total_updates = 0, updates_per_epoch = 0;
  double epoch = 0;
  UpdateMetrics last;                   ///< of the update just done
  NamedMetrics last_evaluation;
};

/// What follows the present update. Callbacks may change it; all ranks then do what any of them wants.
struct LoopControl {
  bool should_log = false, should_evaluate = false, should_save = false;
  bool should_epoch_stop = false;       ///< go on with the next epoch
  bool should_training_stop = false;
};

/// Told of what happens, on every rank, from the thread that runs the loop; names as transformers' TrainerCallback. (Its
/// on_substep_end has no object: a rank's grains are not steps.)
class LoopCallback {
 public:
  virtual ~LoopCallback() = default;
  virtual void on_train_begin(const LoopState& /*state*/, LoopControl& /*control*/) {}
  virtual void on_epoch_begin(const LoopState& /*state*/, LoopControl& /*control*/) {}
  virtual void on_step_begin(const LoopState& /*state*/, LoopControl& /*control*/) {}
  virtual void on_step_end(const LoopState& /*state*/, LoopControl& /*control*/) {}
  virtual void on_log(const LoopState& /*state*/, LoopControl& /*control*/) {}
  virtual void on_evaluate(const LoopState& /*state*/, LoopControl& /*control*/) {}
  virtual void on_save(const LoopState& /*state*/, LoopControl& /*control*/) {}
  virtual void on_epoch_end(const LoopState& /*state*/, LoopControl& /*control*/) {}
  virtual void on_train_end(const LoopState& /*state*/, LoopControl& /*control*/) {}
};

struct LoopParts {
  FlowOptions flow;
  /// Collective; needed when something evaluates.
  std::function<NamedMetrics()> evaluate;
  /// Collective; needed when something saves.
  std::function<void(const LoopState&)> save;
  std::vector<LoopCallback*> callbacks;
  int64_t updates_done = 0;             ///< by the run that is continued
};

/// Collective. Runs what is left of the trainer's order, or until a callback stops it; returns where it ended.
LoopState run_loop(Trainer& trainer, comm::Communicator& comm, const LoopParts& parts);

}  // namespace lockstep::train
