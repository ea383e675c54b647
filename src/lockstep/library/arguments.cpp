#include "lockstep/library/arguments.h"

#include "lockstep/base/error.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/optim/rule.h"
#include "lockstep/options/check.h"
#include "lockstep/options/nearest.h"
#include "lockstep/options/resolve.h"
#include "lockstep/options/value.h"
#include "lockstep/recipes/classify_checks.h"
#include "lockstep/recipes/cli_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

namespace lockstep {
namespace {

using options::Field;
using options::Fields;

/// Options of the command that a program says elsewhere, and where.
struct SaidElsewhere {
  std::string_view key;                 ///< ends in * for all that begin so
  std::string_view where;
};
constexpr std::string_view kInModel = "give the model to SequenceClassifier::from_pretrained()";
constexpr std::string_view kInData = "give the rows to the Trainer: load_dataset(), Dataset::map(), Dataset::take()";
constexpr std::string_view kInLabels = "it is an option of SequenceClassifier::from_pretrained()";
constexpr std::string_view kInLauncher = "processes are started by `lockstep run`, torchrun or srun";
constexpr std::array kElsewhere = {
    SaidElsewhere{"model_name_or_path", kInModel}, SaidElsewhere{"model_revision", kInModel},
    SaidElsewhere{"model_init_kwargs", kInModel}, SaidElsewhere{"config_name", kInModel},
    SaidElsewhere{"tokenizer_name", kInModel}, SaidElsewhere{"ignore_mismatched_sizes", kInLabels},
    SaidElsewhere{"problem_type", kInLabels}, SaidElsewhere{"do_regression", kInLabels},
    SaidElsewhere{"task", kInData}, SaidElsewhere{"task_name", kInData}, SaidElsewhere{"dataset_*", kInData},
    SaidElsewhere{"train_file", kInData}, SaidElsewhere{"validation_file", kInData}, SaidElsewhere{"test_file", kInData},
    SaidElsewhere{"text_*", kInData}, SaidElsewhere{"label_column*", kInData}, SaidElsewhere{"max_length", kInData},
    SaidElsewhere{"max_seq_length", kInData}, SaidElsewhere{"max_train_samples", kInData},
    SaidElsewhere{"max_eval_samples", kInData}, SaidElsewhere{"max_predict_samples", kInData},
    SaidElsewhere{"train_split_name", kInData}, SaidElsewhere{"validation_split_name", kInData},
    SaidElsewhere{"test_split_name", kInData}, SaidElsewhere{"predictions", "Trainer::predict() returns them"},
    SaidElsewhere{"nproc_per_node", kInLauncher}, SaidElsewhere{"num_processes", kInLauncher},
    SaidElsewhere{"nnodes", kInLauncher}, SaidElsewhere{"num_machines", kInLauncher},
    SaidElsewhere{"node_rank", kInLauncher}, SaidElsewhere{"machine_rank", kInLauncher},
    SaidElsewhere{"master_*", kInLauncher}, SaidElsewhere{"main_process_*", kInLauncher},
    SaidElsewhere{"rdzv_*", kInLauncher}, SaidElsewhere{"local_addr", kInLauncher},
    SaidElsewhere{"standalone", kInLauncher}, SaidElsewhere{"max_restarts", kInLauncher},
    SaidElsewhere{"log_dir", kInLauncher}, SaidElsewhere{"accelerate_config", kInLauncher}};

/// Where this option is said instead; empty for a field of TrainingArguments.
std::string_view said_elsewhere(std::string_view key) {
  for (const SaidElsewhere& other : kElsewhere) {
    const bool is_prefix = other.key.ends_with('*');
    const std::string_view name = is_prefix ? other.key.substr(0, other.key.size() - 1) : other.key;
    if (is_prefix ? key.starts_with(name) : key == name) return other.where;
  }
  return {};
}

/// The fields that differ from their defaults came from the program.
options::Origins origins_of_program(const Fields& fields) {
  options::Origins origins;
  for (const Field& field : fields) {
    if (!field.is_default()) origins[field.spec.key] = {options::Origin::Kind::File, "TrainingArguments", 0};
  }
  return origins;
}

/// A command line cannot say these; a program can.
void check_finite(const Fields& fields, options::Problems& problems) {
  for (const Field& field : fields) {
    const options::Value value = field.value();
    const auto* plain = std::get_if<double>(&value);
    const auto* optional = std::get_if<std::optional<double>>(&value);
    const double number = plain != nullptr ? *plain : optional != nullptr ? optional->value_or(0) : 0;
    if (std::isfinite(number)) continue;
    problems.add(fmt::format("{} = {} (TrainingArguments): must be a finite number.", field.spec.key, number));
  }
}

void check_datasets(const recipes::ClassifyOptions& options, const library::ArgumentPlaces& places,
                    options::Problems& problems) {
  if (places.train.empty() || !places.eval.empty()) return;
  if (options.evaluation.eval_strategy != "no") {
    problems.add(fmt::format("eval_strategy = {} (TrainingArguments): there is no eval_dataset. Give the Trainer one, or leave "
                             "eval_strategy at no.", options.evaluation.eval_strategy));
  }
}

}  // namespace

TrainingArguments::TrainingArguments() { take(recipes::ClassifyOptions()); }

recipes::ClassifyOptions TrainingArguments::classify_options() const {
  recipes::ClassifyOptions options;
  options.model = *this;
  options.data = *this;
  options.optim = *this;
  options.train = *this;
  options.evaluation = *this;
  options.checkpoints = *this;
  options.output = *this;
  options.launch = *this;
  options.older = *this;
  return options;
}

void TrainingArguments::take(const recipes::ClassifyOptions& options) {
  static_cast<model::ModelOptions&>(*this) = options.model;
  static_cast<data::ClassifyDataOptions&>(*this) = options.data;
  static_cast<optim::OptimOptions&>(*this) = options.optim;
  static_cast<train::TrainOptions&>(*this) = options.train;
  static_cast<train::EvaluationOptions&>(*this) = options.evaluation;
  static_cast<train::CheckpointOptions&>(*this) = options.checkpoints;
  static_cast<recipes::ClassifyOutputOptions&>(*this) = options.output;
  static_cast<launch::LaunchOptions&>(*this) = options.launch;
  static_cast<recipes::OlderOptions&>(*this) = options.older;
}

void TrainingArguments::set(std::string_view name, std::string_view value) {
  recipes::ClassifyOptions all = classify_options();
  const Fields fields = options::collect(all);
  const Field* const field = options::find(fields, name);
  if (field == nullptr) {
    throw Error::usage("TrainingArguments has no field '{}'. {}", name, options::unknown_key_advice(fields, name, ""));
  }
  if (const std::string_view where = said_elsewhere(field->spec.key); !where.empty()) {
    throw Error::usage("'{}' is no field of TrainingArguments: {}.", field->spec.key, where);
  }
  const auto parsed = options::parse_value(*field, value);
  if (!parsed) throw Error::usage("{} = {}: must be {}.", field->spec.key, value, options::expected_words(*field));
  field->set(*parsed);
  take(all);
}

TrainingArguments TrainingArguments::from_command_line(int argc, char** argv) {
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  recipes::ClassifyOptions all;
  options::Resolved resolved = options::resolve(words, options::collect(all));
  if (resolved.help != options::Help::None) {
    throw Error::usage("the flags are TrainingArguments' fields: `lockstep classify --help` explains them.");
  }
  for (const auto& [key, origin] : resolved.origins) {
    const std::string_view where = said_elsewhere(key);
    if (!where.empty()) resolved.problems.add(fmt::format("'{}' ({}) is no field of TrainingArguments: {}.", key, origin.text(), where));
  }
  resolved.problems.throw_if_any();
  TrainingArguments arguments;
  arguments.take(all);
  return arguments;
}

namespace library {

recipes::ParsedClassify resolve_arguments(const TrainingArguments& arguments, const ArgumentPlaces& places) {
  recipes::ParsedClassify parsed;
  parsed.options = arguments.classify_options();
  recipes::ClassifyOptions& all = parsed.options;
  const Fields fields = options::collect(all);
  parsed.origins = origins_of_program(fields);
  options::Problems problems;
  for (const Field& field : fields) {
    const std::string_view where = said_elsewhere(field.spec.key);
    if (where.empty() || field.is_default()) continue;
    problems.add(fmt::format("'{}' is no field of TrainingArguments: {}.", field.spec.key, where));
  }
  check_finite(fields, problems);
  if (problems.empty()) options::check(fields, parsed.origins, problems, parsed.notes);
  if (problems.empty()) recipes::apply_older_names(all, parsed.origins, problems, parsed.notes);
  // transformers: for scripts, not used by its Trainer.
  all.evaluation.do_train = all.evaluation.do_eval = all.evaluation.do_predict = false;
  all.model.model_name_or_path = places.model;
  if (!places.train.empty()) all.data.train_file = places.train;
  if (!places.eval.empty()) all.data.validation_file = places.eval;
  all.launch.nproc_per_node = std::to_string(places.processes);
  const options::Environment environment{.page = {}, .cores = available_cores(), .nodes = 1};
  if (problems.empty()) recipes::check_batch(all.train, all.launch, parsed.origins, environment, problems);
  recipes::check_output(all.train, parsed.origins, problems);
  recipes::check_duration(all.train, parsed.origins, problems, parsed.notes);
  check_datasets(all, places, problems);
  if (problems.empty()) recipes::check_classify(all, parsed.origins, problems, parsed.notes);
  problems.throw_if_any();
  optim::check_options(all.optim);
  return parsed;
}

}  // namespace library
}  // namespace lockstep
