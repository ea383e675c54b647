#pragma once

#include "lockstep/checkpoint/model_folder.h"
#include "lockstep/checkpoint/output_folder.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/worker_link.h"
#include "lockstep/recipes/run_basis.h"
#include "lockstep/train/console.h"
#include "lockstep/train/fingerprint.h"
#include "lockstep/train/loop.h"
#include "lockstep/train/memory.h"
#include "lockstep/train/options.h"

#include <memory>
#include <optional>
#include <string>

/// What the recipes of all tasks have in common: joining the other processes, what a run shows and writes while it goes on.
namespace lockstep::recipes {

/// Throws Error{Timeout} that lists present and missing ranks.
std::unique_ptr<comm::Communicator> join(const launch::WorkerEnvironment& environment,
                                         const launch::LaunchOptions& options);

/// Collective. Throws Error{Data} naming the first rank that has other data than rank 0. `what`: "fingerprint of the data".
void require_equal_data(const std::string& fingerprint, const char* what, comm::Communicator& comm);

/// Seconds from the start of the command (the front program says when) to now; 0 when nobody says.
double seconds_since_command();

/// Collective. Of a trainer before its first update. Throws Error{Environment} naming the first kernel that gives other bits on
/// another rank.
RunBasis take_basis(train::Trainer& trainer, const train::Fingerprint& fingerprint, comm::Communicator& comm);

/// Which activations to keep, from the memory that is free now.
train::KeepChoice keep_choice(const train::TrainOptions& options, const train::Task& task,
                              const launch::WorkerEnvironment& environment, int threads);

/// Puts run.json into the output folder; the records of an earlier run there are kept until this one has something
/// better to show.
void start_records(checkpoint::OutputFolder& output, const std::string& run_json);

train::ConsoleOptions console_options(const train::TrainOptions& options,
                                      const launch::WorkerEnvironment& environment, int64_t total_updates);

/// Sums over the updates of this process's life.
struct RunTotals {
  double seconds = 0;
  double first_forward_s = 0;
  double loss_sum = 0;
  int64_t num_updates = 0;
  int64_t num_samples = 0;
  train::UpdateMetrics last;
};
/// What transformers' scripts leave as train_results.json, and what scripts/bench reads.
std::string results_json(const RunTotals& totals);
/// Collective; rank 0 has the output folder and writes: the model, the optimizer's state if wanted, train_results.json. The
/// folder then holds them all or, when something fails, what it held before. `model.folder` is not used.
void save_result(train::Trainer& trainer, checkpoint::ModelFolderOptions model, bool with_optimizer_state,
                 const std::string& results_json, checkpoint::OutputFolder* output);

/// "12.3 s" or "01:02".
std::string duration_text(double seconds);

/// Tells the front program which update is under way and keeps the totals; rank 0 also shows the updates and writes
/// metrics.jsonl.
class Progress final : public train::LoopCallback {
 public:
  /// `output`: rank 0 alone, else nullptr. `updates_done`: by the run that is continued.
  Progress(const train::ConsoleOptions& console, const checkpoint::OutputFolder* output, launch::WorkerLink& link,
           std::optional<int64_t> updates_done = {});

  void on_train_begin(const train::LoopState& state, train::LoopControl& control) override;
  void on_step_begin(const train::LoopState& state, train::LoopControl& control) override;
  void on_step_end(const train::LoopState& state, train::LoopControl& control) override;
  void on_evaluate(const train::LoopState& state, train::LoopControl& control) override;
  void on_train_end(const train::LoopState& state, train::LoopControl& control) override;

  /// A line for the user, above the bar; rank 0 alone says it.
  void say(const std::string& line);
  const RunTotals& totals() const { return totals_; }

 private:
  launch::WorkerLink& link_;
  std::optional<train::MetricsFile> file_;
  std::optional<train::Console> console_;
  Clock::time_point start_;
  RunTotals totals_;
};

}  // namespace lockstep::recipes
