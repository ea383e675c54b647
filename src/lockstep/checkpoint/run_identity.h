#pragma once

#include <span>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

/// A field that differs between the run that wrote a checkpoint and the one that resumes; values as JSON, "(absent)" where
/// one side lacks it.
struct RunDifference {
  std::string field;     ///< keys from the root joined by '.', e.g. "run.global_batch_size"
  std::string stored;
  std::string current;
  bool operator==(const RunDifference&) const = default;
};

struct RunComparison {
  std::vector<RunDifference> must_equal;  ///< of fields that define the run's result: an error
  std::vector<RunDifference> changed;     ///< of the others: told
};

/// Which fields are how important. A name stands for itself and all below it ("model" for "model.hidden_size").
struct RunFields {
  std::span<const std::string> must_equal;
  std::span<const std::string> ignored;   ///< never told: output folder, host names, times
};

/// Both arguments are JSON tables (run.json). Numbers are equal by value (2 and 2.0). Differences come in the order of the
/// field names. Throws Error{Data} for text that is not a JSON table.
RunComparison compare_runs(const std::string& stored, const std::string& current, const RunFields& fields);

/// "run.seed: 42 -> 43", one line each, indented by two.
std::string describe(std::span<const RunDifference> differences);

/// Throws Error{Usage} that lists every difference of fields that must be equal.
void require_same_run(const RunComparison& comparison, const std::string& checkpoint);

}  // namespace lockstep::checkpoint
