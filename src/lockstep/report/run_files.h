#pragma once

#include "lockstep/base/files.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::report {

struct Point {
  double step = 0;
  double value = 0;  ///< finite
};
using Points = std::vector<Point>;  ///< steps rise strictly

struct OptionValue {
  std::string value;   ///< as JSON, a text without its quotes
  std::string origin;  ///< "default", "run.yaml:14", "command line"
};

/// What the files of a run say. Everything is optional but metrics.jsonl.
struct Run {
  std::string name;  ///< unique in a report
  fs::path folder;

  std::map<std::string, Points> training;     ///< by key of metrics.jsonl, e.g. "loss"
  std::map<std::string, Points> evaluations;  ///< by key with its prefix, e.g. "eval_loss"
  int64_t num_updates = 0;                    ///< different ones in metrics.jsonl
  int64_t last_update = 0;

  std::vector<std::string> option_names;       ///< in the order of run.json
  std::map<std::string, OptionValue> options;
  std::map<std::string, double> facts;         ///< "run" of run.json: global_batch_size, processes, total_updates ...
  std::map<std::string, double> results;       ///< numbers of train_results.json
  std::vector<std::string> start_report;       ///< "report" of run.json: what was said of the data at the start
  std::optional<double> best_metric;           ///< of trainer_state.json
  std::optional<int64_t> best_step;

  /// What is missing, broken or odd, one sentence each: lines that are no JSON, updates that are missing or came twice,
  /// values that are not finite, files that cannot be read.
  std::vector<std::string> problems;
};

/// Reads metrics.jsonl. Each line is an object with an integer "step"; one with keys eval_... or test_... is an
/// evaluation, another an update. Of an update that comes twice (a run that was resumed) the last counts. Lines that do
/// not fit are counted in `problems`.
void read_metrics(std::string_view text, Run& run);
/// Options with origins, facts and report lines; what does not fit becomes a problem.
void read_run_json(std::string_view text, Run& run);
void read_results_json(std::string_view text, Run& run);
/// Evaluations only if metrics.jsonl had none.
void read_state_json(std::string_view text, Run& run);

/// A run's folder, or its metrics.jsonl. Error{Data} if there is no metrics.jsonl.
Run read_run(const fs::path& path);
/// Names them: the folders' names, or the paths as given where those are not unique.
std::vector<Run> read_runs(const std::vector<std::string>& paths);

}  // namespace lockstep::report
