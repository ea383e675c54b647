#pragma once

#include "lockstep/checkpoint/checkpoint_folder.h"
#include "lockstep/checkpoint/checkpoint_reader.h"
#include "lockstep/checkpoint/checkpoint_writer.h"
#include "lockstep/checkpoint/model_folder.h"
#include "lockstep/optim/metric_schedule.h"
#include "lockstep/recipes/records.h"
#include "lockstep/train/checkpoint_options.h"
#include "lockstep/train/loop.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

/// Checkpoints of a run and its continuation, for the recipes of all tasks.
namespace lockstep::recipes {

struct CheckpointSetup {
  std::filesystem::path output;               ///< exists, held by this run
  checkpoint::ModelFolderOptions model;       ///< `folder` is not used
  std::optional<int64_t> total_limit;         ///< --save_total_limit
  bool only_model = false;                    ///< --save_only_model
  std::string run_json;                       ///< what defines the run; the cursor is added
  std::optional<int64_t> resumed_from;        ///< never removed
  const optim::MetricSchedule* schedule = nullptr;  ///< kept with the cursor
};

/// Takes checkpoints of `trainer` while it goes on. All calls are collective.
class Checkpoints {
 public:
  /// Keeps references.
  Checkpoints(CheckpointSetup setup, train::Trainer& trainer, comm::Communicator& comm, Records& records);

  /// Begins one of the state as it is; returns at once, after an earlier one is finished.
  void save(const train::LoopState& state);
  /// Waits until all are there.
  void finish();

  int64_t num_saved() const { return num_saved_; }
  /// Time in which no grain was computed because of a save.
  double stall_seconds() const { return stall_s_; }
  /// The newest; empty before the first.
  const std::filesystem::path& newest() const { return newest_; }

 private:
  void note(const checkpoint::WaitResult& result);
  void remove_old();

  CheckpointSetup setup_;
  train::Trainer& trainer_;
  comm::Communicator& comm_;
  Records& records_;
  checkpoint::CheckpointWriter writer_;
  std::filesystem::path newest_;
  int64_t num_saved_ = 0;
  double stall_s_ = 0;
};

/// run.json with the identity of a run, which tells its checkpoints from those that an earlier run left in the same folder:
/// that of `continued` (a checkpoint's run.json) if it has one, or a new one. The weights it began with are those of `continued`
/// too.
std::string with_identity(const std::string& run_json, const std::string& continued = {});
/// Whether a checkpoint is of the run whose run.json lies in `output`; true where either says nothing.
std::function<bool(const std::filesystem::path&)> of_the_run_in(const std::filesystem::path& output);

/// Whether --resume_from_checkpoint names one: last, true or a folder; not "false".
bool wants_resume(const std::optional<std::string>& wish);

/// A checkpoint that a run continues.
struct Resumed {
  std::filesystem::path folder;
  train::RunCursor cursor;
  metrics::TrainerState state;
  std::string run_json;                       ///< the checkpoint's
  std::string schedule;                       ///< state of the present schedule, where it follows a metric and was the run's
  std::vector<std::string> changed;           ///< options that differ without defining the result, one line each
};

/// Reads a checkpoint's records and compares what defines the run; Error{Usage} lists every difference. `wish`: last, true,
/// or a folder. Nothing for false or no wish. `before`: called with its folder before anything is taken from it.
std::optional<Resumed> find_resumed(const std::filesystem::path& output, const std::optional<std::string>& wish,
                                    const std::string& run_json,
                                    const std::function<void(const std::filesystem::path&)>& before = {});
/// Collective. Puts its masters and states into the trainer, before the first update.
void restore(train::Trainer& trainer, const Resumed& resumed);
/// Collective. The same for a model that is saved or used and not trained further: its weights, which a checkpoint without
/// optimizer state has too.
void restore_weights(train::Trainer& trainer, const Resumed& resumed);

/// SIGTERM, SIGINT (Ctrl-C; a second one kills) and SIGUSR1 (SLURM's warning) ask for a checkpoint and the end of the run, with
/// exit status 75; while one of these exists. At most one, of the thread that made it.
class StopOnSignal final : public train::LoopCallback {
 public:
  StopOnSignal();
  ~StopOnSignal() override;
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  void on_step_end(const train::LoopState& state, train::LoopControl& control) override;
  /// On this rank.
  static bool asked();
};

}  // namespace lockstep::recipes
