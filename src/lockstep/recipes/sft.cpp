#include "lockstep/recipes/sft.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/grouped.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/model_folder.h"
#include "lockstep/checkpoint/output_folder.h"
#include "lockstep/data/examples.h"
#include "lockstep/recipes/replay.h"
#include "lockstep/recipes/report.h"
#include "lockstep/recipes/run_file.h"
#include "lockstep/recipes/run_parts.h"
#include "lockstep/recipes/setup.h"
#include "lockstep/recipes/training_run.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/train/fingerprint.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/settings.h"
#include "lockstep/train/sft_task.h"
#include "lockstep/train/update.h"

#include <nlohmann/json.hpp>

#include <mutex>
#include <optional>

namespace lockstep::recipes {
namespace {

struct Texts {
  text::Tokenizer tokenizer;
  std::optional<std::string> template_source;
  std::optional<text::ChatTemplate> chat_template;
};

Texts load_texts(const SftOptions& options) {
  Texts texts{text::Tokenizer::from_folder(*options.model.model_name_or_path), {}, {}};
  std::string origin = "the chat template of " + *options.model.model_name_or_path;
  if (options.data.chat_template_path) {
    origin = *options.data.chat_template_path;
    if (fs::is_directory(origin)) {
      throw Error::usage("--chat_template_path = {}: is a folder. Taking over another model's template with its special "
                         "tokens is not there yet: give the Jinja file itself.",
                         origin);
    }
    texts.template_source = read_file(origin);
  } else {
    texts.template_source = texts.tokenizer.chat_template();
  }
  if (texts.template_source) texts.chat_template.emplace(*texts.template_source, origin);
  return texts;
}

/// What is known before the processes meet.
struct Inputs {
  model::DecoderConfig config;
  Texts texts;
  data::Dataset dataset;
  std::optional<data::Dataset> evaluation;    ///< where --eval_strategy asks for it
};

/// All ranks must have made the same tokens: a template may print the date, a file may have changed meanwhile.
std::string fingerprint(const Inputs& inputs) {
  return inputs.dataset.report.fingerprint + (inputs.evaluation ? " " + inputs.evaluation->report.fingerprint : "");
}

/// As trl: the flag, or else what config.json says where it asks for the router's logits.
void choose_router_loss(const model::ModelOptions& options, model::DecoderConfig& config) {
  if (!options.router_aux_loss_coef) return;
  if (config.experts.count == 0 && *options.router_aux_loss_coef != 0)
    throw Error::usage("--router_aux_loss_coef {}: {} has no router, it is no mixture of experts. Leave the flag out.",
                       *options.router_aux_loss_coef, config.architecture);
  config.experts.router_loss = *options.router_aux_loss_coef;
}

void check_positions(const model::DecoderConfig& config, const data::DatasetReport& report) {
  if (report.longest_document <= config.max_position_embeddings) return;
  if (config.learned_positions)
    throw Error::data("the longest sample has {} tokens, and the model has learned {} positions: there is none for the rest. "
                      "Lower --max_length to {} or shorten the data.",
                      report.longest_document, config.max_position_embeddings, config.max_position_embeddings);
  log::warn("sft", "the longest sample has {} tokens, the model was trained on positions up to {}; what it does beyond "
            "is untrained. Lower --max_length to {} or shorten the data.",
            report.longest_document, config.max_position_embeddings, config.max_position_embeddings);
}

/// The facts that define the run's result; stored beside it and with every checkpoint.
std::string run_json(const ParsedSft& parsed, const Inputs& inputs, const Batch& batch, const data::Order& order,
                     const RunBasis& basis) {
  const SftOptions& options = parsed.options;
  return to_json({dump_sft(parsed), options.train, options.optim, batch, order, basis},
                 {{"architecture", inputs.config.architecture}, {"data", inputs.dataset.report.fingerprint}});
}

checkpoint::ModelFolderOptions model_folder(const SftOptions& options, const Texts& texts, at::ScalarType stored) {
  checkpoint::ModelFolderOptions model;
  model.source = *options.model.model_name_or_path;
  model.dtype = saved_dtype(options.model, stored);
  if (options.data.chat_template_path) model.chat_template = texts.template_source;
  return model;
}

std::string last_line(const SftOptions& options, const TrainingEnd& end) {
  const RunTotals& totals = end.totals;
  if (totals.num_updates == 0) {
    return fmt::format("Nothing was left to train: update {} was the last one. The model is in {}", end.state.update,
                       output_folder(options.train));
  }
  std::string text = trained_words(end) + fmt::format(", {} tokens", totals.last.num_tokens) + best_words(end);
  for (const auto& [name, value] : end.evaluation) {
    if (name == "eval_loss") text += fmt::format(", eval_loss {:.4f}", value);
  }
  return text + ". The model is in " + output_folder(options.train);
}

/// trl's names. Entropy and accuracy are weighted by tokens; num_tokens are those trained on so far.
train::NamedMetrics sft_metrics(const train::Evaluation& evaluation, bool loss_only, int64_t num_tokens) {
  train::NamedMetrics named = {{"eval_loss", evaluation.loss()},
                               {"eval_runtime", evaluation.seconds},
                               {"eval_samples_per_second", static_cast<double>(evaluation.num_rows) / evaluation.seconds}};
  if (loss_only) return named;
  if (evaluation.router_coefficient > 0) named.emplace_back("eval_aux_loss", evaluation.router_loss());
  named.emplace_back("eval_entropy", evaluation.entropy());
  named.emplace_back("eval_num_tokens", static_cast<double>(num_tokens));
  named.emplace_back("eval_mean_token_accuracy", evaluation.accuracy());
  return named;
}

std::string evaluation_line(const data::DatasetReport& report) {
  std::string text = fmt::format("  {:<12} {} rows, {} tokens, {} trained ({})", "evaluation", grouped(report.num_kept),
                                 grouped(report.num_tokens), grouped(report.num_targets), fmt::join(report.files, ", "));
  const int64_t dropped = report.num_rows - report.num_kept;
  if (dropped > 0) text += fmt::format("; {} rows dropped, nothing in them is trained", grouped(dropped));
  if (report.num_truncated > 0) text += fmt::format("; {} rows cut at max_length", grouped(report.num_truncated));
  return text;
}

bool streams(const SftOptions& options) { return options.data.dataset_streaming || options.data.streaming; }

Inputs read_inputs(const SftOptions& options, int64_t processes, ThreadTeam& team) {
  // Opened for its checks alone: a missing or truncated file is told before the data is read.
  tensor::WeightFiles::open(*options.model.model_name_or_path);
  Inputs inputs{model::read_decoder_config(*options.model.model_name_or_path), load_texts(options), {}, {}};
  choose_router_loss(options.model, inputs.config);
  const text::ChatTemplate* chat_template = inputs.texts.chat_template ? &*inputs.texts.chat_template : nullptr;
  std::optional<int64_t> max_samples;
  if (streams(options)) max_samples = options.train.max_steps * batch_of(options.train, processes).global;
  inputs.dataset = data::load_sft_dataset(options.data, inputs.texts.tokenizer, chat_template,
                                          inputs.config.vocab_size, team, max_samples);
  check_positions(inputs.config, inputs.dataset.report);
  if (options.evaluation.eval_strategy != "no") {
    inputs.evaluation = data::load_sft_evaluation(options.data, inputs.texts.tokenizer, chat_template,
                                                  inputs.config.vocab_size, team);
  }
  return inputs;
}

void print_report(const ParsedSft& parsed, const Inputs& inputs, const train::Trainer& trainer,
                  int64_t processes, int threads, const std::string& activations) {
  const SftOptions& options = parsed.options;
  const RunFacts facts{.model_folder = *options.model.model_name_or_path,
                       .architecture = inputs.config.architecture,
                       .num_layers = inputs.config.num_layers,
                       .batch = batch_of(options.train, processes),
                       .threads = threads,
                       .activations = activations,
                       .output_folder = output_folder(options.train),
                       .saved_dtype = checkpoint::dtype_name(saved_dtype(options.model, trainer.stored_dtype()))};
  for (const std::string& line : start_report(facts, trainer, data::report_lines(inputs.dataset.report))) {
    fmt::print(stderr, "{}\n", line);
  }
  if (inputs.evaluation) fmt::print(stderr, "{}\n", evaluation_line(inputs.evaluation->report));
}

}  // namespace

// The job, in the order things happen.
void run_sft(const ParsedSft& parsed, launch::WorkerLink& link, const std::optional<ReplayRequest>& replay) {
  const SftOptions& options = parsed.options;
  const launch::WorkerEnvironment& environment = link.environment();
  const bool speaks = environment.world_rank == 0;
  const int threads = environment.num_threads.value_or(available_cores());
  // A dry run is one process that speaks of all.
  const int64_t processes = parsed.dry_run ? parsed.dry_run_processes : int64_t{environment.world_size};

  link.phase("check the settings");
  train::require_bit_stable_settings();
  std::optional<checkpoint::OutputFolder> output;
  // The checkpoint that is to be continued lies in this folder, which then is no stranger's.
  const bool overwrite = options.train.overwrite_output_dir || wants_resume(options.checkpoints.resume_from_checkpoint);
  const bool writes = speaks && !replay;
  if (writes && parsed.dry_run) {
    checkpoint::require_usable_output(output_folder(options.train), overwrite);
  } else if (writes) {
    output.emplace(output_folder(options.train), overwrite);
  }
  ThreadTeam team(threads);

  link.phase("read the model's configuration and the data");
  std::future<train::Fingerprint> kernels = train::begin_fingerprint(compute_dtype(options.train));
  const Inputs inputs = read_inputs(options, processes, team);

  link.phase("join the other processes");
  const std::unique_ptr<comm::Communicator> comm = join(environment, options.launch);
  require_equal_data(fingerprint(inputs), "fingerprint of the data", *comm);

  link.phase("load the weights");
  std::once_flag first_forward;
  double first_forward_s = 0;
  train::TrainProbes probes;
  probes.after_first_forward = [&] {
    std::call_once(first_forward, [&] { first_forward_s = seconds_since_command(); });
  };
  std::optional<tensor::WeightFiles> weights = tensor::WeightFiles::open(*options.model.model_name_or_path);
  const train::SftTask task(inputs.config, inputs.dataset.rows, compute_dtype(options.train),
                            model::training_options(inputs.config, static_cast<uint64_t>(options.train.seed)));
  const Batch batch = batch_of(options.train, processes);
  const data::OrderOptions order =
      order_options(options.train, {streams(options) ? "sequential" : options.data.train_sampling_strategy, options.data.dataloader_drop_last},
                    static_cast<int64_t>(inputs.dataset.rows.size()), batch.global);
  train::Trainer trainer(train_setup(options.train, options.optim, order), task, *weights, *comm, team, probes);
  weights.reset();  // the mapped files would count as this process's memory
  const train::KeepChoice keep = keep_choice(options.train, task, environment, threads);
  trainer.set_keep(keep.keep);

  link.phase("compare the kernels of all processes");
  const RunBasis basis = take_basis(trainer, kernels.get(), *comm);
  if (speaks && (!replay || parsed.dry_run)) print_report(parsed, inputs, trainer, processes, threads, keep.reason);
  if (parsed.dry_run) {
    link.done("Dry run: nothing was trained.");
    return;
  }
  TrainingRunSetup setup{.train = options.train, .evaluation = options.evaluation, .checkpoints = options.checkpoints};
  setup.metric_schedule = metric_schedule(options.optim);
  setup.run_json = run_json(parsed, inputs, batch, trainer.order(), basis);
  if (replay) return run_replay(*replay, setup.run_json, options.train, trainer, *comm, team, link);
  setup.model = model_folder(options, inputs.texts, trainer.stored_dtype());
  setup.first_forward_s = [&] { return first_forward_s; };
  std::optional<train::SftTask> evaluation;
  if (inputs.evaluation) {
    evaluation.emplace(inputs.config, inputs.evaluation->rows, compute_dtype(options.train));
    setup.evaluate = [&](const tensor::ParamStore& params) {
      const data::CutOptions cut{.grain_tokens = options.train.grain_tokens, .min_grains = options.train.min_grains};
      return sft_metrics(train::evaluate(*evaluation, params, cut, *comm, team), options.evaluation.prediction_loss_only,
                         trainer.cursor().num_tokens);
    };
  }
  const TrainingEnd end = run_training(setup, trainer, *comm, link, output ? &*output : nullptr);
  comm->barrier("the end");
  if (speaks) link.done(last_line(options, end));
}

}  // namespace lockstep::recipes
