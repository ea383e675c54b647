#pragma once

#include "lockstep/base/files.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

/// trainer_state.json as transformers 5.24 writes it into a checkpoint, and the decisions that are made from it.
namespace lockstep::metrics {

/// A list or mapping inside a log entry, as JSON text: kept, not understood.
struct JsonText {
  std::string text;
  bool operator==(const JsonText&) const = default;
};
using LogValue = std::variant<std::monostate, bool, int64_t, double, std::string, JsonText>;
/// In the order they are printed. In the file keys are sorted.
using LogEntry = std::vector<std::pair<std::string, LogValue>>;

/// TrainerControl, as stored with a checkpoint.
struct TrainerControl {
  bool should_training_stop = false, should_epoch_stop = false, should_save = false, should_evaluate = false,
       should_log = false;
  bool operator==(const TrainerControl&) const = default;
};

/// EarlyStoppingCallback: stop after `patience` evaluations in a row that were not better than the best before them by
/// more than `threshold`.
struct EarlyStopping {
  int64_t patience = 1;
  double threshold = 0;
  int64_t counter = 0;  ///< evaluations in a row without such an improvement
  bool is_spent() const { return counter >= patience; }
  bool operator==(const EarlyStopping&) const = default;
};

struct TrainerState {
  std::optional<int64_t> best_global_step;
  std::optional<double> best_metric;
  std::optional<std::string> best_model_checkpoint;
  double epoch = 0;
  int64_t global_step = 0, max_steps = 0, num_train_epochs = 0;
  int64_t logging_steps = 500, eval_steps = 500, save_steps = 500;  ///< resolved: no shares of the run
  std::optional<int64_t> train_batch_size;                         ///< per process
  int64_t num_input_tokens_seen = 0;
  double total_flos = 0;
  bool is_local_process_zero = true, is_world_process_zero = true, is_hyper_param_search = false;
  std::vector<LogEntry> log_history;  ///< each with an integer "step"
  TrainerControl control;
  std::optional<EarlyStopping> early_stopping;
  std::map<std::string, std::string> other_callbacks;  ///< name -> JSON text, kept as read
};

/// The file's text: keys sorted, indent 2, ASCII. A number that is not finite is null (Python would write NaN, which is
/// not JSON).
std::string to_json(const TrainerState& state);
/// The inverse; also reads what transformers wrote, NaN and Infinity as null included. Absent keys keep their defaults,
/// unknown ones are ignored. Error{Data} names `where` and the key.
TrainerState trainer_state_from_json(std::string_view text, std::string_view where);

/// <folder>/trainer_state.json, whole or not at all.
void write_trainer_state(const fs::path& folder, const TrainerState& state);
TrainerState read_trainer_state(const fs::path& folder);

/// "accuracy" and "eval_accuracy" both mean eval_accuracy.
std::string best_metric_key(std::string_view metric_for_best_model);
/// Times and rates of an evaluation ("eval_runtime", "samples_per_second_mm"): no run gives the same again.
bool depends_on_clock(std::string_view metric);
/// --greater_is_better, or transformers' rule: unless the name ends in "loss".
bool greater_is_better(std::string_view metric_for_best_model, std::optional<bool> given);
/// The value of best_metric_key(name) in an evaluation's metrics. Error{Usage} that lists those there are,
/// but for those that depend on the clock.
double metric_for_best(std::span<const std::pair<std::string, double>> metrics, std::string_view metric_for_best_model);
/// Strictly; anything but NaN is better than nothing, NaN never is.
bool is_better(double value, std::optional<double> best, bool greater_is_better);

/// Notes a value from the evaluation at state.global_step; true if it is the new best. Ties keep the older one.
bool note_metric(TrainerState& state, double value, bool greater_is_better);
/// Counts an evaluation, with the best as it was before note_metric; true if training should stop.
bool note_evaluation(EarlyStopping& stopping, double value, std::optional<double> best_before, bool greater_is_better);

/// A number on the console: 4 significant digits, as Python's format code .4g.
std::string console_number(double value);
/// A log entry as transformers' progress callback prints it, in the words of a Python dict: floats by console_number as
/// strings, total_flos left out, strings over 100 characters replaced by their length.
std::string console_entry(const LogEntry& entry);

}  // namespace lockstep::metrics
