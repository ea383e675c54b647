#include "lockstep/library/callback_bridge.h"

#include <cmath>
#include <utility>

namespace lockstep {

TrainerCallback::~TrainerCallback() = default;

namespace library {

CallbackBridge::CallbackBridge(const Callbacks& callbacks, TrainerState& state) : callbacks_(callbacks), state_(state) {}

void CallbackBridge::tell(Event event, const train::LoopState& state, train::LoopControl& control) {
  state_.global_step = state.update;
  state_.max_steps = state.total_updates;
  state_.epoch = state.epoch;
  TrainerControl shown{.should_training_stop = control.should_training_stop,
                       .should_epoch_stop = control.should_epoch_stop,
                       .should_save = control.should_save,
                       .should_evaluate = control.should_evaluate,
                       .should_log = control.should_log};
  for (const auto& callback : callbacks_) (callback.get()->*event)(state_, shown);
  control.should_training_stop = shown.should_training_stop;
  control.should_epoch_stop = shown.should_epoch_stop;
  control.should_save = shown.should_save && can_save;
  control.should_evaluate = shown.should_evaluate && can_evaluate;
  control.should_log = shown.should_log;
}

void CallbackBridge::remember(Metrics values, const train::LoopState& state) {
  values["step"] = static_cast<double>(state.update);
  values["epoch"] = state.epoch;
  state_.log_history.push_back(std::move(values));
}

void CallbackBridge::on_train_begin(const train::LoopState& state, train::LoopControl& control) {
  tell(&TrainerCallback::on_train_begin, state, control);
}
void CallbackBridge::on_epoch_begin(const train::LoopState& state, train::LoopControl& control) {
  tell(&TrainerCallback::on_epoch_begin, state, control);
}
void CallbackBridge::on_step_begin(const train::LoopState& state, train::LoopControl& control) {
  tell(&TrainerCallback::on_step_begin, state, control);
}

void CallbackBridge::on_step_end(const train::LoopState& state, train::LoopControl& control) {
  if (!state.last.skipped) {
    window_loss_ += state.last.loss;
    ++window_updates_;
  }
  tell(&TrainerCallback::on_step_end, state, control);
}

void CallbackBridge::on_log(const train::LoopState& state, train::LoopControl& control) {
  const double updates = window_updates_ > 0 ? static_cast<double>(window_updates_) : std::nan("");
  state_.logs = {{"loss", window_loss_ / updates},
                 {"grad_norm", state.last.grad_norm},
                 {"learning_rate", state.last.learning_rate}};
  window_loss_ = 0;
  window_updates_ = 0;
  remember(state_.logs, state);
  tell(&TrainerCallback::on_log, state, control);
}

void CallbackBridge::on_evaluate(const train::LoopState& state, train::LoopControl& control) {
  state_.metrics = to_map(state.last_evaluation);
  remember(state_.metrics, state);
  tell(&TrainerCallback::on_evaluate, state, control);
}

void CallbackBridge::on_save(const train::LoopState& state, train::LoopControl& control) {
  tell(&TrainerCallback::on_save, state, control);
}
void CallbackBridge::on_epoch_end(const train::LoopState& state, train::LoopControl& control) {
  tell(&TrainerCallback::on_epoch_end, state, control);
}
void CallbackBridge::on_train_end(const train::LoopState& state, train::LoopControl& control) {
  tell(&TrainerCallback::on_train_end, state, control);
}

Metrics to_map(const train::NamedMetrics& metrics) { return {metrics.begin(), metrics.end()}; }

}  // namespace library
}  // namespace lockstep
