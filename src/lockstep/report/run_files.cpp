#include "lockstep/report/run_files.h"

#include "lockstep/base/error.h"
#include "lockstep/base/grouped.h"
#include "lockstep/metrics/trainer_state.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>

namespace lockstep::report {
namespace {

using Json = nlohmann::ordered_json;
/// Steps of a series are found out of order in a resumed run, so they are sorted as they are read.
using Sorted = std::map<int64_t, double>;

constexpr const char* kMetricsName = "metrics.jsonl";

/// "metrics.jsonl", "metrics.previous.jsonl".
bool is_metrics_name(const std::string& name) { return name.starts_with("metrics.") && name.ends_with(".jsonl"); }

std::string counted(int64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", grouped(count), count == 1 ? one : many);
}

bool is_evaluation_key(std::string_view key) { return key.starts_with("eval_") || key.starts_with("test_"); }

/// Times of an evaluation say little in a curve.
bool is_timing(std::string_view key) {
  return key.ends_with("_runtime") || key.ends_with("_per_second") || key.ends_with("_preparation_time");
}

Points points_of(const Sorted& sorted) {
  Points points;
  points.reserve(sorted.size());
  for (const auto& [step, value] : sorted) points.push_back({static_cast<double>(step), value});
  return points;
}

struct MetricsReader {
  std::map<std::string, Sorted> training, evaluations;
  std::set<int64_t> updates;
  int64_t num_broken = 0, num_repeated = 0, num_not_finite = 0, num_skipped = 0;

  void line(std::string_view text) {
    const Json json = Json::parse(text, nullptr, false);
    const auto step = json.is_object() ? json.find("step") : json.end();
    if (!json.is_object() || step == json.end() || !step->is_number_integer() || step->get<int64_t>() < 0) {
      ++num_broken;
      return;
    }
    const auto at = step->get<int64_t>();
    const bool evaluation = std::any_of(json.items().begin(), json.items().end(),
                                        [](const auto& item) { return is_evaluation_key(item.key()); });
    if (!evaluation) start_update(json, at);
    for (const auto& [key, value] : json.items()) {
      if (!value.is_number() || key == "step") continue;
      if (evaluation && (!is_evaluation_key(key) || is_timing(key))) continue;
      (evaluation ? evaluations : training)[key][at] = value.get<double>();
    }
  }

  void start_update(const Json& json, int64_t at) {
    if (!updates.insert(at).second) {
      ++num_repeated;
      // A value may be missing this time.
      for (auto& [key, values] : training) values.erase(at);
    }
    const auto is_null = [&](const char* key) { return json.contains(key) && json[key].is_null(); };
    const auto skipped = json.find("skipped");
    const bool was_skipped = skipped != json.end() && skipped->is_boolean() && skipped->get<bool>();
    num_skipped += was_skipped;
    num_not_finite += !was_skipped && (is_null("loss") || is_null("grad_norm"));
  }
};

std::string option_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "none";
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The object in `text`; adds a problem and returns null if there is none.
Json object_of(std::string_view text, std::string_view file, Run& run) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_object()) return json;
  run.problems.push_back(fmt::format("{} is not a JSON object and was left out.", file));
  return nullptr;
}

std::map<std::string, double> numbers_of(const Json& object) {
  std::map<std::string, double> numbers;
  for (const auto& [key, value] : object.items()) {
    if (value.is_number()) numbers[key] = value.get<double>();
  }
  return numbers;
}

/// Beside metrics.jsonl, or in the newest checkpoint.
fs::path find_state(const fs::path& folder) {
  constexpr const char* kStateName = "trainer_state.json";
  fs::path found = folder / kStateName;
  std::error_code problem;
  if (fs::exists(found, problem)) return found;
  int64_t newest = -1;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view kPrefix = "checkpoint-";
    const bool numbered = name.starts_with(kPrefix) && name.size() > kPrefix.size() && name.size() < kPrefix.size() + 18 &&
                          name.find_first_not_of("0123456789", kPrefix.size()) == name.npos;
    if (!numbered || !fs::exists(entry.path() / kStateName, problem)) continue;
    const int64_t number = std::stoll(name.substr(kPrefix.size()));
    if (number <= newest) continue;
    newest = number;
    found = entry.path() / kStateName;
  }
  return found;
}

}  // namespace

void read_metrics(std::string_view text, Run& run) {
  MetricsReader reader;
  const bool last_is_whole = text.empty() || text.ends_with('\n');
  bool last_is_broken = false;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const int64_t before = reader.num_broken;
    reader.line(line);
    last_is_broken = reader.num_broken > before;
  }
  for (const auto& [key, values] : reader.training) run.training[key] = points_of(values);
  for (const auto& [key, values] : reader.evaluations) run.evaluations[key] = points_of(values);
  run.num_updates = static_cast<int64_t>(reader.updates.size());
  run.last_update = reader.updates.empty() ? 0 : *reader.updates.rbegin();

  const bool cut = last_is_broken && !last_is_whole;
  const int64_t broken = reader.num_broken - (cut ? 1 : 0);
  if (broken > 0) {
    run.problems.push_back(fmt::format("{} of {} could not be read: no JSON object with a \"step\".",
                                       counted(broken, "line", "lines"), kMetricsName));
  }
  if (cut) run.problems.push_back(fmt::format("The last line of {} is cut: the run is writing it, or was killed.", kMetricsName));
  if (!reader.updates.empty()) {
    const int64_t missing = run.last_update - *reader.updates.begin() + 1 - run.num_updates;
    if (missing > 0) {
      run.problems.push_back(fmt::format("{} missing from {} between {} and {}.",
                                         counted(missing, "update is", "updates are"), kMetricsName,
                                         grouped(*reader.updates.begin()), grouped(run.last_update)));
    }
  }
  if (reader.num_repeated > 0) {
    run.problems.push_back(fmt::format("{} logged more than once (the run was resumed); the last one is shown.",
                                       counted(reader.num_repeated, "update is", "updates are")));
  }
  if (reader.num_skipped > 0) {
    run.problems.push_back(fmt::format("{} left out because a gradient was not finite.",
                                       counted(reader.num_skipped, "update was", "updates were")));
  }
  if (reader.num_not_finite > 0) {
    run.problems.push_back(fmt::format("{} a loss or gradient norm that is not finite.",
                                       counted(reader.num_not_finite, "update has", "updates have")));
  }
}

void read_run_json(std::string_view text, Run& run) {
  const Json json = object_of(text, "run.json", run);
  if (json.is_null()) return;
  if (json.contains("options") && json["options"].is_object()) {
    for (const auto& [key, option] : json["options"].items()) {
      const bool is_whole = option.is_object() && option.contains("value");
      const bool has_origin = is_whole && option.contains("origin") && option["origin"].is_string();
      run.option_names.push_back(key);
      run.options[key] = {option_text(is_whole ? option["value"] : option),
                          has_origin ? option["origin"].get<std::string>() : std::string("unknown")};
    }
  }
  run.facts = numbers_of(json);
  if (json.contains("run") && json["run"].is_object()) run.facts.merge(numbers_of(json["run"]));
  if (json.contains("report") && json["report"].is_array()) {
    for (const Json& line : json["report"]) {
      if (line.is_string()) run.start_report.push_back(line.get<std::string>());
    }
  }
}

void read_results_json(std::string_view text, Run& run) {
  const Json json = object_of(text, "train_results.json", run);
  if (!json.is_null()) run.results = numbers_of(json);
}

void read_state_json(std::string_view text, Run& run) {
  metrics::TrainerState state;
  try {
    state = metrics::trainer_state_from_json(text, "trainer_state.json");
  } catch (const Error&) {
    run.problems.push_back("trainer_state.json could not be read and was left out.");
    return;
  }
  run.best_metric = state.best_metric;
  run.best_step = state.best_global_step;
  if (!run.evaluations.empty()) return;
  std::map<std::string, Sorted> evaluations;
  for (const metrics::LogEntry& entry : state.log_history) {
    const auto step = std::find_if(entry.begin(), entry.end(), [](const auto& item) { return item.first == "step"; });
    if (step == entry.end() || !std::holds_alternative<int64_t>(step->second)) continue;
    for (const auto& [key, value] : entry) {
      if (!is_evaluation_key(key) || is_timing(key)) continue;
      const double* number = std::get_if<double>(&value);
      const int64_t* whole = std::get_if<int64_t>(&value);
      if (number == nullptr && whole == nullptr) continue;
      evaluations[key][std::get<int64_t>(step->second)] = number != nullptr ? *number : static_cast<double>(*whole);
    }
  }
  for (const auto& [key, values] : evaluations) run.evaluations[key] = points_of(values);
}

Run read_run(const fs::path& path) {
  Run run;
  std::error_code problem;
  const bool is_folder = fs::is_directory(path, problem);
  run.folder = is_folder ? path : path.has_parent_path() ? path.parent_path() : fs::path(".");
  const fs::path metrics_file = is_folder ? path / kMetricsName : path;
  if (!fs::exists(path, problem)) {
    throw Error::data("{}: there is no such folder (looked for {}). Name the --output_dir of a run.", path.string(),
                      fs::absolute(path, problem).lexically_normal().string());
  }
  if (!is_folder && !is_metrics_name(path.filename().string())) {
    throw Error::data("{}: is a file, and not one with a run's metrics. Name the --output_dir of a run, in which {} lies.",
                      path.string(), kMetricsName);
  }
  if (!fs::is_regular_file(metrics_file, problem)) {
    throw Error::data("{}: there is no {}, which every run of lockstep sft and lockstep classify writes from its first update "
                      "on. Name the --output_dir of a run.", path.string(), metrics_file.string());
  }
  read_metrics(read_file(metrics_file), run);
  const std::pair<fs::path, void (*)(std::string_view, Run&)> others[] = {
      {run.folder / "run.json", read_run_json},
      {run.folder / "train_results.json", read_results_json},
      {find_state(run.folder), read_state_json}};
  for (const auto& [file, read] : others) {
    if (fs::exists(file, problem)) read(read_file(file), run);
  }
  if (run.num_updates == 0) run.problems.push_back(fmt::format("{} has no update yet.", kMetricsName));
  if (run.options.empty()) run.problems.emplace_back("There is no run.json with its options.");
  return run;
}

std::vector<Run> read_runs(const std::vector<std::string>& paths) {
  std::vector<Run> runs;
  std::map<std::string, int> seen, numbers;
  for (const std::string& path : paths) {
    Run run = read_run(path);
    const fs::path folder = fs::absolute(run.folder).lexically_normal();
    run.name = folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
    ++seen[run.name];
    runs.push_back(std::move(run));
  }
  for (size_t i = 0; i < runs.size(); ++i) {
    if (seen[runs[i].name] > 1) runs[i].name = paths[i];
    const int number = ++numbers[runs[i].name];
    if (number > 1) runs[i].name += fmt::format(" ({})", number);
  }
  return runs;
}

}  // namespace lockstep::report
