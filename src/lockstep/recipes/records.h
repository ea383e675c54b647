#pragma once

#include "lockstep/metrics/tensorboard.h"
#include "lockstep/metrics/trainer_state.h"
#include "lockstep/train/evaluation_options.h"
#include "lockstep/train/loop.h"

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace lockstep::recipes {

struct RecordsOptions {
  /// Rank 0 alone: where TensorBoard's event files go, and the texts that go with them.
  std::optional<std::filesystem::path> tensorboard;
  std::string args_json, model_config_json;
  /// Which evaluation is the best; unset: nobody asks.
  std::optional<std::string> metric_for_best_model;
  std::optional<bool> greater_is_better;
  std::optional<metrics::EarlyStopping> early_stopping;
  bool save_best = false;               ///< --save_strategy best
  train::FlowOptions flow;
};

/// The name of the metric that decides, or nothing: --metric_for_best_model, or "loss" where something needs one.
std::optional<std::string> best_metric_name(const train::EvaluationOptions& options, bool is_needed);

/// Early stopping by `wanted`, with what the run that is continued has seen of evaluations.
std::optional<metrics::EarlyStopping> continued_stopping(const std::optional<metrics::EarlyStopping>& wanted,
                                                         const metrics::TrainerState& state);

/// What Hugging Face's tools read of a run: the state that becomes trainer_state.json (with its log_history), TensorBoard's
/// event files, the best evaluation and early stopping. On every rank, with the same decisions; rank 0 writes.
class Records final : public train::LoopCallback {
 public:
  /// `state`: of the run that is continued, or as a new one begins.
  Records(RecordsOptions options, metrics::TrainerState state);

  /// A run that early stopping had ended does not go on when it is continued.
  void on_train_begin(const train::LoopState& state, train::LoopControl& control) override;
  void on_step_end(const train::LoopState& state, train::LoopControl& control) override;
  void on_log(const train::LoopState& state, train::LoopControl& control) override;
  void on_evaluate(const train::LoopState& state, train::LoopControl& control) override;

  /// As of now; the epoch and update of `state` are put in.
  metrics::TrainerState at(const train::LoopState& state) const;
  const std::optional<int64_t>& best_update() const { return state_.best_global_step; }
  bool stopped_early() const { return state_.early_stopping && state_.early_stopping->is_spent(); }
  /// Whether the log has an evaluation after `update`.
  bool has_evaluation(int64_t update) const;
  /// A line of the log that is no update: the end of training, a prediction.
  void append(const train::LoopState& state, const train::NamedMetrics& values);
  /// Names the checkpoint of the best evaluation.
  void note_best_checkpoint(const std::string& path) { state_.best_model_checkpoint = path; }

 private:
  void add(int64_t update, double epoch, train::NamedMetrics values);

  RecordsOptions options_;
  metrics::TrainerState state_;
  std::optional<metrics::EventFile> events_;
  double window_loss_ = 0;
  int64_t window_updates_ = 0;
};

/// Which metrics of an evaluation the console shows; files have them all.
struct ConsoleMetrics {
  bool all = false;       ///< somebody named them: only times are left out
  std::string always = {};  ///< this one too, with or without its prefix: the one that decides which model is the best
};
/// Without times, and without what another of them says already: log_loss and mse beside loss, precision, recall and other
/// averages beside f1, f1_micro beside accuracy.
train::NamedMetrics for_console(const train::NamedMetrics& metrics, const ConsoleMetrics& wish = {});
/// "eval_loss 0.4503  eval_accuracy 0.7843": what the console prints.
std::string metrics_line(const train::NamedMetrics& metrics, const ConsoleMetrics& wish = {});
/// A JSON object with the metrics in order.
std::string metrics_json(const train::NamedMetrics& metrics);

}  // namespace lockstep::recipes
