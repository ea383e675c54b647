#include "lockstep/recipes/classify.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/recipes/classify_evaluation.h"
#include "lockstep/recipes/classify_inputs.h"
#include "lockstep/recipes/predictions_file.h"
#include "lockstep/recipes/problem_checks.h"
#include "lockstep/recipes/replay.h"
#include "lockstep/recipes/report.h"
#include "lockstep/recipes/run_parts.h"
#include "lockstep/recipes/setup.h"
#include "lockstep/recipes/training_run.h"
#include "lockstep/train/fingerprint.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/loaded_model.h"
#include "lockstep/train/settings.h"

#include <cmath>
#include <memory>
#include <mutex>
#include <optional>

namespace lockstep::recipes {
namespace {

/// One split that is evaluated or predicted, with its task.
struct Judged {
  const data::ClassifySplit* split = nullptr;
  std::unique_ptr<train::ClassifyTask> task;
};

/// One run of the command on one rank: what it has read, and what it does with it.
class Classify {
 public:
  Classify(const ParsedClassify& parsed, launch::WorkerLink& link, const std::optional<ReplayRequest>& replay)
      : parsed_(parsed),
        options_(parsed.options),
        replay_(replay),
        link_(link),
        speaks_(link.environment().world_rank == 0),
        threads_(link.environment().num_threads.value_or(available_cores())),
        team_(threads_) {}

  void run() {
    link_.phase("check the settings");
    train::require_bit_stable_settings();
    open_output();
    link_.phase("read the model's configuration and the data");
    kernels_ = train::begin_fingerprint(compute_dtype(options_.train));
    inputs_.emplace(read_classify_inputs(options_, team_));
    require_fitting_flags(parsed_, inputs_->dataset);
    link_.phase("join the other processes");
    comm_ = join(link_.environment(), options_.launch);
    require_equal_data(fingerprint(inputs_->dataset), "fingerprint of the data", *comm_);
    for (const auto& split : inputs_->dataset.validation) validation_.push_back(judged(split));
    for (const auto& split : inputs_->dataset.test) test_.push_back(judged(split));
    if (inputs_->dataset.train.empty() && replay_) throw Error::usage("the rows that the run was trained on are not there any more.");
    if (inputs_->dataset.train.empty()) {
      use_only();
    } else {
      train_it();
    }
  }

 private:
  Judged judged(const data::ClassifySplit& split) { return {&split, make_task(options_, *inputs_, split.rows, false)}; }

  data::CutOptions cut() const {
    return {.grain_tokens = options_.train.grain_tokens, .min_grains = options_.train.min_grains};
  }

  void open_output() {
    const std::string folder = output_folder(options_.train);
    if (!speaks_ || replay_) return;
    // The checkpoint that is to be continued lies in this folder, which then is no stranger's.
    const bool overwrite = options_.train.overwrite_output_dir || wants_resume(options_.checkpoints.resume_from_checkpoint);
    if (parsed_.dry_run) {
      checkpoint::require_usable_output(folder, overwrite);
    } else {
      output_.emplace(folder, overwrite);
    }
  }

  // ---- without training ----------------------------------------------------

  void use_only() {
    for (const std::string& line : data::report_lines(inputs_->dataset)) say(line);
    if (parsed_.dry_run) return finish("Dry run: nothing was evaluated.");
    if (validation_.empty() && test_.empty()) {
      throw Error::usage("there is nothing to train on, evaluate or predict for. Give --train_file, --validation_file or "
                         "--test_file, or a --dataset_name folder with such splits.");
    }
    link_.phase("load the weights");
    const train::ClassifyTask& task = *(validation_.empty() ? test_ : validation_).front().task;
    const tensor::WeightFiles weights = tensor::WeightFiles::open(*options_.model.model_name_or_path);
    const train::LoadedModel model(task, weights, team_);
    tell_weights(task);
    if (!task.loaded().made_new.empty()) {
      log::warn("classify", "the head of this model is new, so what follows is no better than guessing. Train it first.");
    }
    if (!validation_.empty()) {
      link_.phase("evaluate");
      results_ = evaluate_validation(model.params());
      files_.emplace_back("eval_results.json", metrics_json(results_));
      say(metrics_line(results_, console_metrics()));
    }
    predict(model.params());
    keep_earlier_files();
    write_files();
    finish(last_words(used_words()));
  }

  // ---- training ------------------------------------------------------------

  void train_it() {
    const data::ClassifySplit& split = inputs_->dataset.train.front();
    const launch::WorkerEnvironment& environment = link_.environment();
    const int64_t processes = parsed_.dry_run ? parsed_.dry_run_processes : int64_t{environment.world_size};
    batch_ = batch_of(options_.train, processes);
    const data::OrderOptions order =
        order_options(options_.train, {options_.data.train_sampling_strategy, options_.data.dataloader_drop_last},
                      static_cast<int64_t>(split.rows.size()), batch_.global);
    link_.phase("load the weights");
    const auto task = make_task(options_, *inputs_, split.rows, true);
    train::TrainProbes probes;
    probes.after_first_forward = [this] {
      std::call_once(first_forward_, [&] { first_forward_s_ = seconds_since_command(); });
    };
    std::optional<tensor::WeightFiles> weights = tensor::WeightFiles::open(*options_.model.model_name_or_path);
    train::Trainer trainer(train_setup(options_.train, options_.optim, order), *task, *weights, *comm_, team_, probes);
    weights.reset();  // the mapped files would count as this process's memory
    const train::KeepChoice keep = keep_choice(options_.train, *task, environment, threads_);
    trainer.set_keep(keep.keep);
    link_.phase("compare the kernels of all processes");
    const RunBasis basis = take_basis(trainer, kernels_.get(), *comm_);
    if (!replay_ || parsed_.dry_run) {
      report(trainer, keep.reason);
      tell_weights(*task);
    }
    if (parsed_.dry_run) return finish("Dry run: nothing was trained.");
    const std::string run = run_json(parsed_, *inputs_, batch_, trainer.order(), basis);
    if (replay_) return run_replay(*replay_, run, options_.train, trainer, *comm_, team_, link_);
    loop(trainer, run);
  }

  void loop(train::Trainer& trainer, const std::string& run) {
    TrainingRunSetup setup{.train = options_.train, .evaluation = options_.evaluation, .checkpoints = options_.checkpoints};
    setup.metric_schedule = metric_schedule(options_.optim);
    setup.run_json = run;
    setup.model = model_folder(trainer.stored_dtype());
    setup.first_forward_s = [this] { return first_forward_s_; };
    setup.tells_all_metrics = console_metrics().all;
    setup.after_save = [this] { write_files(); };
    if (!validation_.empty()) setup.evaluate = [this](const tensor::ParamStore& params) { return evaluate_validation(params); };
    const TrainingEnd end =
        run_training(setup, trainer, *comm_, link_, output_ ? &*output_ : nullptr,
                     [&](Records&, const train::LoopState&) { predict(trainer.params()); });
    results_ = end.evaluation;
    if (end.totals.num_updates == 0) {
      return finish(last_words(fmt::format("Nothing was left to train: update {} was the last one", end.state.update)));
    }
    finish(last_words(trained_words(end) + best_words(end)));
  }

  // ---- evaluation ----------------------------------------------------------

  train::NamedMetrics evaluate_split(const Judged& judged, const tensor::ParamStore& params, const std::string& prefix,
                                     const std::string& suffix, train::Evaluation* kept = nullptr) {
    train::Evaluation evaluation = train::evaluate(*judged.task, params, cut(), *comm_, team_);
    const std::vector<std::string> wanted = wanted_metrics(options_, inputs_->dataset);
    train::NamedMetrics named = named_metrics(evaluation, judged.split->rows, inputs_->dataset.labels, wanted, prefix, suffix);
    if (kept != nullptr) *kept = std::move(evaluation);
    return named;
  }

  /// All validation splits; the second of mnli gets run_glue's suffix.
  train::NamedMetrics evaluate_validation(const tensor::ParamStore& params) {
    train::NamedMetrics all;
    for (const Judged& split : validation_) {
      const std::string suffix = &split == &validation_.front() ? "" : "_mm";
      for (auto& named : evaluate_split(split, params, "eval", suffix)) all.push_back(std::move(named));
    }
    return all;
  }

  /// What is left beside the model: predict_results.json and the predictions.
  void predict(const tensor::ParamStore& params) {
    std::string predictions;
    for (const Judged& split : test_) {
      link_.phase("predict");
      train::Evaluation evaluation;
      const bool labelled = split.split->report.num_unlabelled < static_cast<int64_t>(split.split->rows.size());
      const train::NamedMetrics named = evaluate_split(split, params, "test", "", &evaluation);
      if (labelled) {
        files_.emplace_back("predict_results.json", metrics_json(named));
        say(metrics_line(named, console_metrics()));
      }
      predictions += prediction_lines(evaluation, split.split->rows, inputs_->dataset.labels);
    }
    if (!test_.empty()) predictions_ = std::move(predictions);
  }

  /// Results of another model that the folder holds are not lost to one evaluation more.
  void keep_earlier_files() {
    for (const auto& [name, content] : files_) {
      if (output_ && output_->keep_previous(name)) {
        log::info("classify", "{} holds an earlier {}; it is kept as {}.previous.json", output_->path().string(), name,
                  fs::path(name).stem().string());
      }
    }
  }

  void write_files() {
    if (!output_) return;
    for (const auto& [name, content] : files_) write_file_atomically(output_->path() / name, content);
    if (predictions_) write_file_atomically(predictions_path(options_), *predictions_);
  }

  // ---- words ---------------------------------------------------------------

  void say(const std::string& line) const {
    if (speaks_) fmt::print(stderr, "{}\n", line);
  }

  void report(const train::Trainer& trainer, const std::string& activations) const {
    if (!speaks_) return;
    const RunFacts facts{.model_folder = *options_.model.model_name_or_path,
                         .architecture = inputs_->architecture(),
                         .num_layers = inputs_->num_layers(),
                         .batch = batch_,
                         .threads = threads_,
                         .activations = activations,
                         .output_folder = output_folder(options_.train),
                         .saved_dtype = checkpoint::dtype_name(saved_dtype(options_.model, trainer.stored_dtype()))};
    for (const std::string& line : start_report(facts, trainer, data::report_lines(inputs_->dataset))) say(line);
  }

  ConsoleMetrics console_metrics() const {
    return {.all = options_.output.metric_name.has_value(), .always = options_.evaluation.metric_for_best_model.value_or("")};
  }

  void tell_weights(const train::ClassifyTask& task) const {
    const bool continues = !inputs_->dataset.train.empty() && wants_resume(options_.checkpoints.resume_from_checkpoint);
    for (const std::string& line : weight_lines(task, options_.train.seed, continues)) say(line);
  }

  std::string used_words() const {
    const bool evaluates = !validation_.empty();
    const char* what = test_.empty() ? "Evaluated" : evaluates ? "Evaluated and predicted with" : "Predicted with";
    return fmt::format("{} {}", what, *options_.model.model_name_or_path);
  }

  std::string last_words(const std::string& begin) const {
    std::string text = begin;
    for (const auto& [name, value] : for_console(results_, console_metrics())) {
      text += fmt::format(", {} {:.4f}", name, std::isnan(value) ? std::fabs(value) : value);
    }
    const bool trained = !inputs_->dataset.train.empty();
    if (trained || !files_.empty()) {
      text += fmt::format(". The {} in {}", trained ? "model is" : "results are", output_folder(options_.train));
    }
    if (predictions_) text += ". Predictions are in " + predictions_path(options_);
    return text;
  }

  void finish(const std::string& words) {
    comm_->barrier("the end");
    if (speaks_) link_.done(words);
  }

  checkpoint::ModelFolderOptions model_folder(at::ScalarType stored) const {
    checkpoint::ModelFolderOptions model;
    model.source = *options_.model.model_name_or_path;
    model.dtype = saved_dtype(options_.model, stored);
    model.config_changes = config_changes(*inputs_);
    return model;
  }

  const ParsedClassify& parsed_;
  const ClassifyOptions& options_;
  const std::optional<ReplayRequest>& replay_;
  launch::WorkerLink& link_;
  bool speaks_;
  int threads_;
  ThreadTeam team_;
  std::future<train::Fingerprint> kernels_;
  std::optional<checkpoint::OutputFolder> output_;
  std::optional<ClassifyInputs> inputs_;
  std::unique_ptr<comm::Communicator> comm_;
  std::vector<Judged> validation_, test_;
  Batch batch_;
  std::once_flag first_forward_;
  double first_forward_s_ = 0;
  train::NamedMetrics results_;
  std::vector<std::pair<std::string, std::string>> files_;
  std::optional<std::string> predictions_;
};

}  // namespace

void run_classify(const ParsedClassify& parsed, launch::WorkerLink& link, const std::optional<ReplayRequest>& replay) {
  Classify(parsed, link, replay).run();
}

}  // namespace lockstep::recipes
