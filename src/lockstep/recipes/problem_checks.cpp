#include "lockstep/recipes/problem_checks.h"

#include "lockstep/metrics/trainer_state.h"
#include "lockstep/recipes/classify_evaluation.h"
#include "lockstep/recipes/cli_checks.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace lockstep::recipes {
namespace {

bool holds(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void check_smoothing(const ParsedClassify& parsed, const data::ClassifyDataset& dataset, options::Problems& problems) {
  const double factor = parsed.options.optim.label_smoothing_factor;
  if (factor == 0 || dataset.train.empty() || dataset.labels.problem == data::Problem::SingleLabel) return;
  problems.add(fmt::format("{}: the labels make this {}, and only rows with one class each have a label to smooth. Leave it out.",
                           with_origin(parsed.origins, "label_smoothing_factor", factor), data::name(dataset.labels.problem)));
}

void check_metric_names(const ParsedClassify& parsed, const data::ClassifyDataset& dataset, options::Problems& problems) {
  const std::vector<std::string> known = metrics_of(dataset.labels);
  for (const std::string& name : parsed.options.output.metric_name.value_or(std::vector<std::string>())) {
    if (holds(known, name)) continue;
    problems.add(fmt::format("{}: is no metric of {} with {} {}. Use some of {}.", with_origin(parsed.origins, "metric_name", name),
                             data::name(dataset.labels.problem), dataset.labels.num_labels,
                             dataset.labels.problem == data::Problem::Regression ? "target(s)" : "classes", fmt::join(known, ", ")));
  }
}

/// What evaluations of this run give, without "eval_".
std::vector<std::string> evaluated_names(const ClassifyOptions& options, const data::ClassifyDataset& dataset) {
  std::vector<std::string> names = {"loss"};
  for (const std::string& name : wanted_metrics(options, dataset)) names.push_back(name);
  if (dataset.validation.size() < 2) return names;
  for (const std::string& name : std::vector<std::string>(names)) names.push_back(name + "_mm");
  return names;
}

void check_best_metric(const ParsedClassify& parsed, const data::ClassifyDataset& dataset, options::Problems& problems) {
  const train::EvaluationOptions& evaluation = parsed.options.evaluation;
  if (dataset.train.empty() || !evaluation.metric_for_best_model) return;
  const std::string key = metrics::best_metric_key(*evaluation.metric_for_best_model);
  const std::string name = key.substr(std::string_view("eval_").size());
  const std::vector<std::string> names = evaluated_names(parsed.options, dataset);
  if (holds(names, name)) return;
  std::string advice = fmt::format("Use one of {}", fmt::join(names, ", "));
  if (holds(metrics_of(dataset.labels), name)) {
    advice += evaluation.prediction_loss_only ? ", or leave --prediction_loss_only out" : ", or name it with --metric_name too";
  }
  problems.add(fmt::format("{}: the evaluations of this run have no {}. {}.",
                           with_origin(parsed.origins, "metric_for_best_model", *evaluation.metric_for_best_model), key, advice));
}

}  // namespace

void require_fitting_flags(const ParsedClassify& parsed, const data::ClassifyDataset& dataset, bool own_metrics) {
  options::Problems problems;
  check_smoothing(parsed, dataset, problems);
  if (!own_metrics) {
    check_metric_names(parsed, dataset, problems);
    check_best_metric(parsed, dataset, problems);
  }
  problems.throw_if_any();
}

}  // namespace lockstep::recipes
