#pragma once

#include "lockstep/checkpoint/model_folder.h"
#include "lockstep/checkpoint/output_folder.h"
#include "lockstep/optim/metric_schedule.h"
#include "lockstep/recipes/checkpoints.h"
#include "lockstep/recipes/records.h"
#include "lockstep/recipes/run_parts.h"
#include "lockstep/train/checkpoint_options.h"
#include "lockstep/train/evaluation_options.h"
#include "lockstep/train/options.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// A run from its first update to the saved model: what is the same for all tasks.
namespace lockstep::recipes {

struct TrainingRunSetup {
  const train::TrainOptions& train;
  const train::EvaluationOptions& evaluation;
  const train::CheckpointOptions& checkpoints;
  std::optional<optim::MetricSchedule> metric_schedule = {};  ///< needed where the trainer's schedule follows a metric
  std::string run_json = {};                  ///< what defines the run: stored beside it and with every checkpoint
  checkpoint::ModelFolderOptions model = {};  ///< `folder` is not used
  std::function<double()> first_forward_s = {};  ///< see RunTotals; asked after the last update
  /// Collective. Of the validation rows; empty: there are none.
  std::function<train::NamedMetrics(const tensor::ParamStore&)> evaluate = {};
  bool tells_all_metrics = false;             ///< see ConsoleMetrics: somebody named them
  std::vector<train::LoopCallback*> callbacks = {};
  std::function<void()> after_save = {};      ///< on rank 0: what else belongs to the result, before the run counts as ended
};

/// How a run ended. The same on every rank, but for times.
struct TrainingEnd {
  train::LoopState state;
  RunTotals totals;
  int64_t num_applied = 0;                    ///< updates that were not skipped
  std::optional<int64_t> best_update;         ///< whose model is saved, where that is not the last
  train::NamedMetrics evaluation;             ///< of the saved model; empty without validation rows
  std::string lost_best;                      ///< why the last model is saved though another was the best; empty: it is not so
  bool is_left = false;                       ///< the run had ended before: no file was touched
};

/// Collective: continues or begins the run in the output folder, runs `trainer`'s updates with what is due between them
/// (evaluations, checkpoints, records), puts the best model in place and saves it. Rank 0 has `output`. `at_the_end` is
/// called with the parameters that are saved, before they are saved. Throws Error{Resumable} when a signal asked for the
/// end and a checkpoint is complete.
TrainingEnd run_training(const TrainingRunSetup& setup, train::Trainer& trainer, comm::Communicator& comm,
                         launch::WorkerLink& link, checkpoint::OutputFolder* output,
                         const std::function<void(Records&, const train::LoopState&)>& at_the_end = {});

/// "Trained 12 updates" (of a run that was continued "Trained updates 31 to 60 of 60"), ", 2 of them SKIPPED (not finite), in 3.1 s (last loss 0.4123)".
std::string trained_words(const TrainingEnd& end);
/// ", the best of them (update 4)", or why it is the last; empty when nothing is to be said.
std::string best_words(const TrainingEnd& end);

}  // namespace lockstep::recipes
