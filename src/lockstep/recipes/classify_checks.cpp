#include "lockstep/recipes/classify_checks.h"

#include "lockstep/base/files.h"
#include "lockstep/recipes/classify_cli.h"
#include "lockstep/recipes/cli_checks.h"
#include "lockstep/recipes/evaluation_checks.h"
#include "lockstep/recipes/predictions_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace lockstep::recipes {
namespace {

using data::Wanted;
using options::Origins;
using options::Problems;
using options::Words;

bool is_set(const std::optional<std::string>& text) { return !text.value_or("").empty(); }

void check_work(const ClassifyOptions& options, const Origins& origins, Problems& problems, Words& notes) {
  const ClassifyWork work = work_of(options);
  const data::ClassifyDataOptions& data = options.data;
  const auto require = [&](Wanted wanted, const char* doing, const char* file) {
    if (wanted != Wanted::Yes || is_set(data.dataset_name)) return;
    problems.add(fmt::format("there is no data to {}: give a file with --{}, or a folder with --dataset_name.", doing, file));
  };
  if (!is_set(data.train_file)) require(work.train, "train on", "train_file");
  if (!is_set(data.validation_file)) require(work.validation, "evaluate on", "validation_file");
  if (!is_set(data.test_file)) require(work.test, "predict for", "test_file");
  if (is_set(options.output.predictions) && work.test == Wanted::No) {
    problems.add(with_origin(origins, "predictions", *options.output.predictions) +
                 ": nothing is predicted. Add --do_predict, or name the rows with --test_file.");
  }
  if (work.train != Wanted::No) return;
  for (const char* key : {"eval_strategy", "resume_from_checkpoint", "load_best_model_at_end"}) {
    if (!is_given(origins, key)) continue;
    notes.push_back(fmt::format("{} ({}) has no effect: nothing is trained.", key, options::origin_of(origins, key).text()));
  }
}

void check_labels(const ClassifyOptions& options, const Origins& origins, Problems& problems) {
  const data::ClassifyDataOptions& data = options.data;
  const std::string of_task = data.task ? data::glue_problem_type(*data.task) : "";
  if (data.task && data.problem_type && *data.problem_type != of_task) {
    problems.add(fmt::format("{}: {} is {}. Leave --problem_type out.",
                             with_origin(origins, "problem_type", *data.problem_type), with_origin(origins, "task", *data.task),
                             of_task));
  }
  constexpr std::string_view kOneClass = "single_label_classification";
  const bool has_one_class = data.task ? of_task == kOneClass : data.problem_type.value_or(std::string(kOneClass)) == kOneClass;
  if (options.optim.label_smoothing_factor > 0 && !has_one_class) {
    problems.add(with_origin(origins, "label_smoothing_factor", options.optim.label_smoothing_factor) +
                 ": only rows with one class each have a label to smooth. Leave it out.");
  }
  if (data.text_pair_column && !data.text_column) {
    problems.add(with_origin(origins, "text_pair_column", *data.text_pair_column) +
                 ": give the first text's column too, with --text_column.");
  }
  if (data.text_column && data.text_column == data.text_pair_column) {
    problems.add(with_origin(origins, "text_pair_column", *data.text_pair_column) +
                 ": is the text column too. Leave it out for single texts.");
  }
  if (data.label_column && (data.label_column == data.text_column || data.label_column == data.text_pair_column)) {
    problems.add(with_origin(origins, "label_column", *data.label_column) + ": is a text column too. Name another.");
  }
  if (data.max_length && data.max_seq_length && *data.max_length != *data.max_seq_length) {
    problems.add(fmt::format("{} and {} are two names of one option. Leave one out.",
                             with_origin(origins, "max_length", *data.max_length),
                             with_origin(origins, "max_seq_length", *data.max_seq_length)));
  }
}

void check_not_empty(const ClassifyOptions& options, const Origins& origins, Problems& problems) {
  const auto check = [&](std::string_view key, const std::optional<std::string>& value) {
    if (value && value->empty()) problems.add(with_origin(origins, key, "''") + ": is empty. Give a name, or leave it out.");
  };
  check("train_file", options.data.train_file);
  check("validation_file", options.data.validation_file);
  check("test_file", options.data.test_file);
  check("text_column", options.data.text_column);
  check("text_pair_column", options.data.text_pair_column);
  check("label_column", options.data.label_column);
  check("resume_from_checkpoint", options.checkpoints.resume_from_checkpoint);
  check("metric_for_best_model", options.evaluation.metric_for_best_model);
  check("predictions", options.output.predictions);
}

/// Of a folder with a test split too, though nobody named it: predictions replace what is there.
void check_predictions_file(const ClassifyOptions& options, const Origins& origins, Problems& problems) {
  if (!options.output.predictions && work_of(options).test == Wanted::No) return;
  const auto problem = predictions_problem(options);
  if (!problem) return;
  problems.add(options.output.predictions
                   ? fmt::format("{}: {}.", with_origin(origins, "predictions", *options.output.predictions), *problem)
                   : fmt::format("the predictions go to {}, which {}.", predictions_path(options), *problem));
}

void expand_paths(ClassifyOptions& options) {
  for (auto* path : {&options.data.train_file, &options.data.validation_file, &options.data.test_file,
                     &options.checkpoints.resume_from_checkpoint, &options.output.predictions, &options.train.logging_dir}) {
    if (*path) *path = expand_user(**path);
  }
}

}  // namespace

void require_inputs(const ClassifyOptions& options, options::Resolved& resolved) {
  if (!is_set(options.model.model_name_or_path) && !resolved.may_mean("model_name_or_path")) {
    resolved.problems.add("missing --model_name_or_path: the folder of the model to start from. "
                          "Try --model_name_or_path all-MiniLM-L6-v2.");
  }
  const data::ClassifyDataOptions& data = options.data;
  const bool has_data =
      is_set(data.dataset_name) || is_set(data.train_file) || is_set(data.validation_file) || is_set(data.test_file);
  constexpr std::array<std::string_view, 4> kKeys = {"dataset_name", "train_file", "validation_file", "test_file"};
  const auto may_mean = [&](std::string_view key) { return resolved.may_mean(key); };
  if (!has_data && std::none_of(kKeys.begin(), kKeys.end(), may_mean)) {
    resolved.problems.add("missing --dataset_name: a folder with train and validation files (JSONL, CSV or TSV), or a file. "
                          "Try --dataset_name mrpc.");
  }
}

void check_classify(ClassifyOptions& options, const Origins& origins, Problems& problems, Words& notes) {
  check_not_empty(options, origins, problems);
  check_work(options, origins, problems, notes);
  const bool evaluates = options.evaluation.eval_strategy != "no" && work_of(options).train != Wanted::No;
  check_evaluation({options.train, options.evaluation, options.checkpoints, options.optim, evaluates}, origins, problems,
                   notes);
  if (options.evaluation.eval_on_start && work_of(options).train == Wanted::No) {
    notes.push_back(with_origin(origins, "eval_on_start", true) + " has no effect: nothing is trained.");
  }
  check_labels(options, origins, problems);
  expand_paths(options);
  if (!problems.empty()) return;
  check_predictions_file(options, origins, problems);
}

ClassifyWork work_of(const ClassifyOptions& options) {
  const data::ClassifyDataOptions& data = options.data;
  const train::EvaluationOptions& evaluation = options.evaluation;
  ClassifyWork work;
  const bool says = evaluation.do_train || evaluation.do_eval || evaluation.do_predict;
  if (says ? evaluation.do_train : is_set(data.dataset_name) || is_set(data.train_file)) work.train = Wanted::Yes;
  const bool must_evaluate = evaluation.do_eval || (!says && is_set(data.validation_file)) ||
                             (work.train == Wanted::Yes && evaluation.eval_strategy != "no");
  if (must_evaluate) {
    work.validation = Wanted::Yes;
  } else if (!says) {
    work.validation = Wanted::IfThere;
  }
  if (says ? evaluation.do_predict : is_set(data.test_file) || is_set(data.dataset_test_split)) work.test = Wanted::Yes;
  return work;
}

}  // namespace lockstep::recipes
