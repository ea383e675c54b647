#include "lockstep/train/loop.h"

#include "lockstep/base/error.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>

namespace lockstep::train {
namespace {

using Event = void (LoopCallback::*)(const LoopState&, LoopControl&);

class Loop {
 public:
  Loop(Trainer& trainer, comm::Communicator& comm, const LoopParts& parts)
      : trainer_(trainer), comm_(comm), parts_(parts) {
    state_.total_updates = trainer.order().total_updates();
    state_.updates_per_epoch = trainer.order().updates_per_epoch();
    state_.update = parts.updates_done;
    state_.last.num_tokens = trainer.cursor().num_tokens;
    state_.epoch = static_cast<double>(state_.update) / static_cast<double>(state_.updates_per_epoch);
  }

  LoopState run() {
    tell(&LoopCallback::on_train_begin);
    agree();
    while (state_.update < state_.total_updates && !control_.should_training_stop) step();
    tell(&LoopCallback::on_train_end);
    return state_;
  }

 private:
  void step() {
    const int64_t update = state_.update + 1;
    if (state_.update == parts_.updates_done || state_.update % state_.updates_per_epoch == 0) {
      tell(&LoopCallback::on_epoch_begin);
    }
    tell(&LoopCallback::on_step_begin);
    state_.last = trainer_.run_update(update);
    state_.update = update;
    state_.epoch = state_.last.epoch;
    const bool ends_epoch = update % state_.updates_per_epoch == 0 || update == state_.total_updates;
    const FlowDecision due = after_update(parts_.flow, {update, state_.total_updates, ends_epoch, state_.epoch});
    control_.should_log = due.log;
    control_.should_evaluate = due.evaluate;
    control_.should_save = due.save;
    tell(&LoopCallback::on_step_end);
    if (ends_epoch) tell(&LoopCallback::on_epoch_end);
    agree();
    act();
    if (control_.should_epoch_stop) leave_epoch();
  }

  void act() {
    if (control_.should_log) tell(&LoopCallback::on_log);
    if (control_.should_evaluate) {
      LS_CHECK(parts_.evaluate != nullptr, "an evaluation is due after update {}, but there is none", state_.update);
      state_.last_evaluation = parts_.evaluate();
      tell(&LoopCallback::on_evaluate);  // may ask for a save of the best model, or stop early
      agree();
    }
    if (control_.should_save) {
      LS_CHECK(parts_.save != nullptr, "a save is due after update {}, but there is none", state_.update);
      parts_.save(state_);
      tell(&LoopCallback::on_save);
    }
  }

  /// What is left of the epoch is not computed; its updates keep their numbers.
  void leave_epoch() {
    control_.should_epoch_stop = false;
    const int64_t done = state_.update % state_.updates_per_epoch;
    if (done == 0) return;
    state_.update = std::min(state_.total_updates, state_.update + state_.updates_per_epoch - done);
    tell(&LoopCallback::on_epoch_end);
  }

  void tell(Event event) {
    for (LoopCallback* callback : parts_.callbacks) (callback->*event)(state_, control_);
  }

  /// A callback may look at what only its rank sees (a signal, a file, a clock): what one wants, all do.
  void agree() {
    bool* const wishes[] = {&control_.should_log, &control_.should_evaluate, &control_.should_save,
                            &control_.should_epoch_stop, &control_.should_training_stop};
    at::Tensor flags = at::empty({static_cast<int64_t>(std::size(wishes))}, at::kLong);
    auto* flag = flags.data_ptr<int64_t>();
    for (size_t i = 0; i < std::size(wishes); ++i) flag[i] = *wishes[i] ? 1 : 0;
    comm_.all_reduce_max(flags, "what follows an update");
    for (size_t i = 0; i < std::size(wishes); ++i) *wishes[i] = flag[i] != 0;
  }

  Trainer& trainer_;
  comm::Communicator& comm_;
  const LoopParts& parts_;
  LoopState state_;
  LoopControl control_;
};

}  // namespace

LoopState run_loop(Trainer& trainer, comm::Communicator& comm, const LoopParts& parts) {
  return Loop(trainer, comm, parts).run();
}

}  // namespace lockstep::train
