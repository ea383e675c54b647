#include "lockstep/library/trainer.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/library/arguments.h"
#include "lockstep/library/callback_bridge.h"
#include "lockstep/library/inputs.h"
#include "lockstep/library/process.h"
#include "lockstep/library/settings.h"
#include "lockstep/recipes/checkpoints.h"
#include "lockstep/recipes/classify_evaluation.h"
#include "lockstep/recipes/cli_checks.h"
#include "lockstep/recipes/problem_checks.h"
#include "lockstep/recipes/report.h"
#include "lockstep/recipes/setup.h"
#include "lockstep/recipes/training_run.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/loaded_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

/// What the labels' rows are called in run.json; empty without rows.
std::string source_text(const Dataset& dataset) {
  return dataset.empty() ? std::string() : fmt::format("{}", fmt::join(DatasetAccess::of(dataset).sources, ", "));
}

std::shared_ptr<const loss::OwnLoss> to_own_loss(const LossFunction& function) {
  if (!function) return {};
  return std::make_shared<const loss::OwnLoss>(
      [function](const loss::OwnLossInput& input, std::span<float> losses, std::span<float> gradient) {
        function({.num_rows = input.num_rows, .num_labels = input.num_classes, .logits = input.logits, .labels = input.labels},
                 losses, gradient);
      });
}

library::ArgumentPlaces places_of(const TrainerParts& parts, int processes) {
  return {.model = parts.model.folder(), .train = source_text(parts.train_dataset), .eval = source_text(parts.eval_dataset),
          .processes = processes};
}

/// The result must not take the place of the model it comes from.
void require_another_folder(const recipes::ClassifyOptions& options) {
  if (options.train.overwrite_output_dir) return;
  const std::string& model = *options.model.model_name_or_path;
  const bool saves = options.data.train_file && options.checkpoints.save_strategy != "no";
  const recipes::Replaced replaced = recipes::replaced_by_run(model, recipes::output_folder(options.train), saves);
  if (replaced == recipes::Replaced::Nothing) return;
  if (replaced == recipes::Replaced::Checkpoint) {
    throw Error::usage("output_dir = {} holds the model to start from, {}, which a checkpoint of this run may replace. Name another, "
                       "or set overwrite_output_dir.", recipes::output_folder(options.train), model);
  }
  throw Error::usage("output_dir = {} is the folder of the model to start from. Name another, or set overwrite_output_dir.",
                     recipes::output_folder(options.train));
}

}  // namespace

namespace library {
/// One split that is evaluated or predicted, with its task.
struct JudgedRows {
  const data::ClassifySplit* split = nullptr;
  std::unique_ptr<train::ClassifyTask> task;
};
}  // namespace library

/// What recipes/classify.cpp is to the command: the same parts, for rows from memory and for several calls.
struct Trainer::Impl {
  explicit Impl(TrainerParts given)
      : parts(std::move(given)),
        environment(library::environment_of_process()),
        parsed(library::resolve_arguments(parts.args, places_of(parts, environment.world_size))),
        options(parsed.options),
        model(ClassifierAccess::of(parts.model)) {
    options.output.ignore_mismatched_sizes = model.options.ignore_mismatched_sizes;
    require_another_folder(options);
    if (options.optim.label_smoothing_factor > 0 && parts.compute_loss_func) {
      throw Error::usage("label_smoothing_factor = {} with compute_loss_func: smooth the labels in the function, or leave one "
                         "of the two out.", options.optim.label_smoothing_factor);
    }
    for (const auto& callback : parts.callbacks) {
      if (!callback) throw Error::usage("callbacks: one of them is a null pointer.");
    }
    inputs.emplace(library::make_inputs(model, parts.train_dataset, parts.eval_dataset));
    // The start-up report has them where rows are trained on.
    const std::vector<std::string>& notes = inputs->dataset.notes;
    if (parts.train_dataset.empty()) parsed.notes.insert(parsed.notes.end(), notes.begin(), notes.end());
    recipes::require_fitting_flags(parsed, inputs->dataset, static_cast<bool>(parts.compute_metrics));
    own_loss = to_own_loss(parts.compute_loss_func);
    state.is_world_process_zero = speaks();
    TrainerControl control;
    for (const auto& callback : parts.callbacks) callback->on_init_end(state, control);
  }

  bool speaks() const { return environment.world_rank == 0; }
  void say(const std::string& line) const {
    if (speaks()) fmt::print(stderr, "{}\n", line);
  }

  // ---- joining -------------------------------------------------------------

  /// Before anything computes: threads, settings, the other processes.
  void begin() {
    if (team) return;
    log::init(environment.world_rank, log::level_from_name(options.train.log_level));
    team.emplace(threads_of_process(options.launch.threads_per_process));
    library::use_bit_stable_settings(*team);
    for (const std::string& note : parsed.notes) say("note: " + note);
    link.emplace(environment);
    group = &library::join_group({.backend = options.launch.ddp_backend.value_or("gloo"),
                                  .timeout = static_cast<double>(options.launch.ddp_timeout),
                                  .join_timeout = options.launch.start_timeout});
    recipes::require_equal_data(recipes::fingerprint(inputs->dataset), "fingerprint of the data", comm());
    if (!inputs->dataset.validation.empty()) validation = judged(inputs->dataset.validation.front());
  }

  comm::Communicator& comm() const { return *group->comm; }

  library::JudgedRows judged(const data::ClassifySplit& split) const {
    return {&split, recipes::make_task(options, *inputs, split.rows, false, own_loss)};
  }

  // ---- training ------------------------------------------------------------

  TrainOutput train() {
    if (inputs->dataset.train.empty()) throw Error::usage("train(): there is no train_dataset. Give the Trainer one.");
    if (task) {
      throw Error::usage("train() was called before. Make another Trainer: with args.resume_from_checkpoint = \"last\" it "
                         "continues, with a model of {} it starts anew.", recipes::output_folder(options.train));
    }
    open_output();
    begin();
    const data::ClassifySplit& split = inputs->dataset.train.front();
    batch = recipes::batch_of(options.train, comm().size());
    const data::OrderOptions order = recipes::order_options(
        options.train, {options.data.train_sampling_strategy, options.data.dataloader_drop_last},
        static_cast<int64_t>(split.rows.size()), batch.global);
    task = recipes::make_task(options, *inputs, split.rows, true, own_loss);
    loaded.reset();
    train::TrainProbes probes;
    probes.after_first_forward = [this] {
      std::call_once(first_forward, [&] { first_forward_s = recipes::seconds_since_command(); });
    };
    const train::TrainSetup setup = recipes::train_setup(options.train, options.optim, order);
    {
      const tensor::WeightFiles weights = tensor::WeightFiles::open(model.folder);
      trainer = std::make_unique<train::Trainer>(setup, *task, weights, comm(), *team, probes);
    }
    const train::KeepChoice keep = recipes::keep_choice(options.train, *task, environment, team->size());
    trainer->set_keep(keep.keep);
    const recipes::RunBasis basis = recipes::take_basis(*trainer, train::take_fingerprint(trainer->params().compute_dtype()), comm());
    report(keep.reason);
    tell_weights(*task);
    const recipes::TrainingEnd end = run(basis);
    output.reset();
    comm().barrier("the end of training");
    return output_of(end);
  }

  recipes::TrainingEnd run(const recipes::RunBasis& basis) {
    recipes::TrainingRunSetup setup{.train = options.train,
                                    .evaluation = options.evaluation,
                                    .checkpoints = options.checkpoints,
                                    .metric_schedule = recipes::metric_schedule(options.optim),
                                    .run_json = recipes::run_json(parsed, *inputs, batch, trainer->order(), basis,
                                                                  own_loss ? std::optional(parts.loss_name) : std::nullopt),
                                    .model = {},
                                    .first_forward_s = [this] { return first_forward_s; },
                                    .evaluate = {},
                                    .tells_all_metrics = static_cast<bool>(parts.compute_metrics),
                                    .callbacks = {}};
    setup.model.source = model.folder;
    setup.model.dtype = recipes::saved_dtype(options.model, trainer->stored_dtype());
    setup.model.config_changes = recipes::config_changes(*inputs);
    library::CallbackBridge bridge(parts.callbacks, state);
    bridge.can_save = options.checkpoints.save_strategy != "no";
    bridge.can_evaluate = validation.split != nullptr;
    setup.callbacks = {&bridge};
    if (bridge.can_evaluate) {
      setup.evaluate = [this](const tensor::ParamStore& params) { return evaluate(validation, params, "eval"); };
    }
    return recipes::run_training(setup, *trainer, comm(), *link, output ? &*output : nullptr);
  }

  void open_output() {
    if (!speaks()) return;
    const bool overwrite = options.train.overwrite_output_dir || recipes::wants_resume(options.checkpoints.resume_from_checkpoint);
    output.emplace(recipes::output_folder(options.train), overwrite);
  }

  TrainOutput output_of(const recipes::TrainingEnd& end) const {
    const auto updates = static_cast<double>(std::max<int64_t>(1, end.totals.num_updates));
    const double seconds = std::max(1e-9, end.totals.seconds);
    TrainOutput result;
    result.global_step = end.state.update;
    result.training_loss = end.totals.loss_sum / updates;
    result.best_step = end.best_update;
    result.metrics = library::to_map(end.evaluation);
    result.metrics["epoch"] = end.state.epoch;
    result.metrics["train_loss"] = result.training_loss;
    result.metrics["train_runtime"] = end.totals.seconds;
    result.metrics["train_samples_per_second"] = static_cast<double>(end.totals.num_samples) / seconds;
    result.metrics["train_steps_per_second"] = updates / seconds;
    return result;
  }

  void report(const std::string& activations) const {
    if (!speaks()) return;
    const recipes::RunFacts facts{
        .model_folder = model.folder,
        .architecture = inputs->architecture(),
        .num_layers = inputs->num_layers(),
        .batch = batch,
        .threads = team->size(),
        .activations = activations,
        .output_folder = recipes::output_folder(options.train),
        .saved_dtype = checkpoint::dtype_name(recipes::saved_dtype(options.model, trainer->stored_dtype()))};
    for (const std::string& line : recipes::start_report(facts, *trainer, data::report_lines(inputs->dataset))) say(line);
  }

  void tell_weights(const train::ClassifyTask& of) const {
    const bool continues = recipes::wants_resume(options.checkpoints.resume_from_checkpoint);
    for (const std::string& line : recipes::weight_lines(of, options.train.seed, continues)) say(line);
  }

  // ---- use -----------------------------------------------------------------

  /// Of the trained model, or of the folder's. `of`: any task of this model.
  const tensor::ParamStore& params(const train::ClassifyTask& of) {
    if (trainer) return trainer->params();
    if (!loaded) {
      loaded = std::make_unique<train::LoadedModel>(of, tensor::WeightFiles::open(model.folder), *team);
      if (!of.loaded().made_new.empty()) {
        log::warn("trainer", "the head of this model is new, so what follows is no better than guessing. Train it first.");
      }
    }
    return loaded->params();
  }

  data::CutOptions cut() const { return {.grain_tokens = options.train.grain_tokens, .min_grains = options.train.min_grains}; }

  train::NamedMetrics evaluate(const library::JudgedRows& rows, const tensor::ParamStore& of, const std::string& prefix,
                               train::Evaluation* kept = nullptr) {
    train::Evaluation evaluation = train::evaluate(*rows.task, of, cut(), comm(), *team);
    const bool own = static_cast<bool>(parts.compute_metrics);
    const std::vector<std::string> wanted =
        own ? std::vector<std::string>() : recipes::wanted_metrics(options, inputs->dataset);
    train::NamedMetrics named =
        recipes::named_metrics(evaluation, rows.split->rows, inputs->dataset.labels, wanted, prefix, "");
    if (own && rows.split->report.num_unlabelled == 0) add_own_metrics(evaluation, rows, prefix, named);
    if (kept != nullptr) *kept = std::move(evaluation);
    return named;
  }

  void add_own_metrics(const train::Evaluation& evaluation, const library::JudgedRows& rows, const std::string& prefix,
                       train::NamedMetrics& named) const {
    std::vector<float> labels;
    for (const data::LabelledRow& row : rows.split->rows) labels.insert(labels.end(), row.labels.begin(), row.labels.end());
    const auto width = evaluation.outputs.size(1);
    const std::span<const float> logits(evaluation.outputs.const_data_ptr<float>(),
                                        static_cast<size_t>(evaluation.num_rows * width));
    const Metrics own = parts.compute_metrics(
        {.num_rows = evaluation.num_rows, .num_labels = width, .predictions = logits, .label_ids = labels});
    auto place = named.begin() + 1;  // behind the loss, before the times
    for (const auto& [name, value] : own) {
      place = named.insert(place, {name.starts_with(prefix + "_") ? name : prefix + "_" + name, value}) + 1;
    }
  }

  Metrics evaluate_validation() {
    if (parts.eval_dataset.empty()) {
      throw Error::usage("evaluate(): there is no eval_dataset. Give the Trainer one, or evaluate() a data set.");
    }
    begin();
    return tell_evaluation(evaluate(validation, params(*validation.task), "eval"));
  }

  Metrics evaluate_rows(const Dataset& dataset) {
    const data::ClassifySplit split =
        library::make_split(dataset, "the data set to evaluate", model, *inputs, data::Unlabelled::Refused);
    begin();
    recipes::require_equal_data(split.report.fingerprint, "fingerprint of the evaluated data", comm());
    const library::JudgedRows rows = judged(split);
    return tell_evaluation(evaluate(rows, params(*rows.task), "eval"));
  }

  Metrics tell_evaluation(const train::NamedMetrics& named) {
    state.metrics = library::to_map(named);
    TrainerControl control;
    for (const auto& callback : parts.callbacks) callback->on_evaluate(state, control);
    return state.metrics;
  }

  PredictionOutput predict(const Dataset& dataset) {
    const data::ClassifySplit split =
        library::make_split(dataset, "the data set to predict for", model, *inputs, data::Unlabelled::Allowed);
    begin();
    recipes::require_equal_data(split.report.fingerprint, "fingerprint of the data to predict for", comm());
    const library::JudgedRows rows = judged(split);
    train::Evaluation evaluation;
    PredictionOutput result;
    result.metrics = library::to_map(evaluate(rows, params(*rows.task), "test", &evaluation));
    if (split.report.num_unlabelled == split.report.num_rows) {
      std::erase_if(result.metrics, [](const auto& metric) {
        return metric.first != "test_runtime" && metric.first != "test_samples_per_second";
      });
    }
    result.num_rows = evaluation.num_rows;
    result.num_labels = evaluation.outputs.size(1);
    const auto* logits = evaluation.outputs.const_data_ptr<float>();
    result.predictions.assign(logits, logits + evaluation.outputs.numel());
    result.id2label = inputs->dataset.labels.names();
    for (const auto& callback : parts.callbacks) callback->on_predict(state, result.metrics);
    return result;
  }

  TrainerParts parts;
  launch::WorkerEnvironment environment;
  recipes::ParsedClassify parsed;
  recipes::ClassifyOptions& options;    ///< parsed.options
  const SequenceClassifier::Impl& model;
  TrainerState state;
  std::optional<recipes::ClassifyInputs> inputs;
  std::shared_ptr<const loss::OwnLoss> own_loss;
  std::optional<ThreadTeam> team;       ///< begin() makes it and what follows
  std::optional<launch::WorkerLink> link;
  library::Group* group = nullptr;      ///< the process's
  library::JudgedRows validation;
  std::optional<checkpoint::OutputFolder> output;
  recipes::Batch batch;
  std::unique_ptr<train::ClassifyTask> task;  ///< of the training rows
  std::unique_ptr<train::Trainer> trainer;
  std::unique_ptr<train::LoadedModel> loaded;
  std::once_flag first_forward;
  double first_forward_s = 0;
};

Trainer::Trainer(TrainerParts parts) {
  library::with_our_errors([&] { impl_ = std::make_unique<Impl>(std::move(parts)); });
}
Trainer::~Trainer() = default;
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;

TrainOutput Trainer::train() {
  TrainOutput result;
  library::with_our_errors([&] { result = impl_->train(); });
  return result;
}

Metrics Trainer::evaluate() {
  Metrics result;
  library::with_our_errors([&] { result = impl_->evaluate_validation(); });
  return result;
}

Metrics Trainer::evaluate(const Dataset& dataset) {
  Metrics result;
  library::with_our_errors([&] { result = impl_->evaluate_rows(dataset); });
  return result;
}

PredictionOutput Trainer::predict(const Dataset& dataset) {
  PredictionOutput result;
  library::with_our_errors([&] { result = impl_->predict(dataset); });
  return result;
}

const std::vector<std::string>& Trainer::notes() const { return impl_->parsed.notes; }

}  // namespace lockstep
