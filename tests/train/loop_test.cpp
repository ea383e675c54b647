// The order in which a run's events come, and that what one rank wants all ranks do.
#include "lockstep/train/loop.h"
#include "lockstep/train/sft_task.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;
const fs::path kLoopModel = fs::path(LOCKSTEP_TEST_DATA) / "models" / "tiny" / "llama";

std::vector<data::TokenRow> rows_of_loop() {
  std::vector<data::TokenRow> rows(5);
  for (size_t row = 0; row < rows.size(); ++row) {
    for (int i = 0; i < 6; ++i) {
      rows[row].ids.push_back(static_cast<int32_t>(7 * row) + i);
      rows[row].trained.push_back(1);
    }
  }
  return rows;
}

/// Writes down what it is told; may ask for something after an update.
class Recorder final : public LoopCallback {
 public:
  std::string text;
  std::function<void(const LoopState&, LoopControl&)> after_step;

  void on_train_begin(const LoopState&, LoopControl&) override { text += "train( "; }
  void on_epoch_begin(const LoopState&, LoopControl&) override { text += "epoch( "; }
  void on_step_begin(const LoopState&, LoopControl&) override { text += "step("; }
  void on_step_end(const LoopState& state, LoopControl& control) override {
    text += fmt::format("{}) ", state.update);
    if (after_step) after_step(state, control);
  }
  void on_log(const LoopState&, LoopControl&) override { text += "log "; }
  void on_evaluate(const LoopState& state, LoopControl&) override {
    text += fmt::format("evaluate:{} ", state.last_evaluation.at(0).second);
  }
  void on_save(const LoopState&, LoopControl&) override { text += "save "; }
  void on_epoch_end(const LoopState&, LoopControl&) override { text += ")epoch "; }
  void on_train_end(const LoopState&, LoopControl&) override { text += ")train"; }
};

/// What each of `ranks` ranks saw of a run of two epochs with two updates each.
std::vector<std::string> run_ranks(int ranks, const FlowOptions& flow,
                             const std::function<void(int rank, const LoopState&, LoopControl&)>& after_step = {},
                             int64_t updates_done = 0) {
  const std::vector<data::TokenRow> rows = rows_of_loop();
  const tensor::WeightFiles weights = tensor::WeightFiles::open(kLoopModel);
  const SftTask task(model::read_decoder_config(kLoopModel), rows, at::kFloat);
  auto comms = comm::make_threads(ranks, Milliseconds(20'000));
  std::vector<std::string> seen(comms.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < comms.size(); ++rank) {
    threads.emplace_back([&, rank] {
      ThreadTeam team(1);
      TrainSetup setup;
      setup.order = {.num_rows = 5, .global_batch = 3, .num_epochs = 2};
      setup.schedule = {.kind = optim::Schedule::Kind::Constant, .total_updates = 4};
      setup.optimizer = {.learning_rate = 1e-3};
      Trainer trainer(setup, task, weights, *comms[rank], team);
      Recorder recorder;
      recorder.after_step = [&](const LoopState& state, LoopControl& control) {
        if (after_step) after_step(static_cast<int>(rank), state, control);
      };
      int evaluations = 0;
      LoopParts parts;
      parts.flow = flow;
      parts.evaluate = [&] { return NamedMetrics{{"loss", ++evaluations}}; };
      parts.save = [](const LoopState&) {};
      parts.callbacks = {&recorder};
      parts.updates_done = updates_done;
      const LoopState end = run_loop(trainer, *comms[rank], parts);
      seen[rank] = recorder.text + fmt::format(" at {} of {}", end.update, end.total_updates);
    });
  }
  threads.clear();
  return seen;
}

TEST(Loop, EventsComeInTransformersOrder) {
  FlowOptions flow;
  flow.logging_steps = 2;
  flow.evaluation = flow.saving = Strategy::Epoch;
  EXPECT_EQ(run_ranks(1, flow).front(),
            "train( epoch( step(1) step(2) )epoch log evaluate:1 save epoch( step(3) step(4) )epoch log evaluate:2 save "
            ")train at 4 of 4");
}

TEST(Loop, WhatOneRankWantsAllDo) {
  FlowOptions flow;
  flow.logging = Strategy::No;
  const auto seen = run_ranks(3, flow, [](int rank, const LoopState& state, LoopControl& control) {
    if (rank == 1 && state.update == 1) control.should_save = true;
    if (rank == 2 && state.update == 3) control.should_training_stop = true;
  });
  for (const std::string& text : seen) {
    EXPECT_EQ(text, "train( epoch( step(1) save step(2) )epoch epoch( step(3) )train at 3 of 4");
  }
}

TEST(Loop, AnEpochMayBeLeft) {
  FlowOptions flow;
  flow.logging = Strategy::No;
  const auto seen = run_ranks(1, flow, [](int, const LoopState& state, LoopControl& control) {
    if (state.update == 1) control.should_epoch_stop = true;
  });
  EXPECT_EQ(seen.front(), "train( epoch( step(1) )epoch epoch( step(3) step(4) )epoch )train at 4 of 4");
}

TEST(Loop, ARunThatIsContinuedBeginsWhereItStood) {
  FlowOptions flow;
  flow.logging = Strategy::No;
  EXPECT_EQ(run_ranks(1, flow, {}, 3).front(), "train( epoch( step(4) )epoch )train at 4 of 4");
}

}  // namespace
}  // namespace lockstep::train
