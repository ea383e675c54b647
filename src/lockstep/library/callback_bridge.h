#pragma once

#include "lockstep/library/callback.h"
#include "lockstep/train/loop.h"

#include <memory>
#include <vector>

namespace lockstep::library {

/// Tells the user's callbacks what the loop tells its own. Not installed.
class CallbackBridge final : public train::LoopCallback {
 public:
  using Callbacks = std::vector<std::shared_ptr<TrainerCallback>>;
  CallbackBridge(const Callbacks& callbacks, TrainerState& state);

  void on_train_begin(const train::LoopState& state, train::LoopControl& control) override;
  void on_epoch_begin(const train::LoopState& state, train::LoopControl& control) override;
  void on_step_begin(const train::LoopState& state, train::LoopControl& control) override;
  void on_step_end(const train::LoopState& state, train::LoopControl& control) override;
  void on_log(const train::LoopState& state, train::LoopControl& control) override;
  void on_evaluate(const train::LoopState& state, train::LoopControl& control) override;
  void on_save(const train::LoopState& state, train::LoopControl& control) override;
  void on_epoch_end(const train::LoopState& state, train::LoopControl& control) override;
  void on_train_end(const train::LoopState& state, train::LoopControl& control) override;

  /// Where a callback wants what the run has no means for: an evaluation without rows, a checkpoint without a strategy.
  bool can_evaluate = false, can_save = false;

 private:
  using Event = void (TrainerCallback::*)(const TrainerState&, TrainerControl&);
  void tell(Event event, const train::LoopState& state, train::LoopControl& control);
  void remember(Metrics values, const train::LoopState& state);

  const Callbacks& callbacks_;
  TrainerState& state_;
  double window_loss_ = 0;              ///< of the updates since the last log event
  int64_t window_updates_ = 0;
};

Metrics to_map(const train::NamedMetrics& metrics);

}  // namespace lockstep::library
