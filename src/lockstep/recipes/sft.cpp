#include "lockstep/recipes/sft.h"

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/model_folder.h"
#include "lockstep/checkpoint/optimizer_state.h"
#include "lockstep/checkpoint/output_folder.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/data/examples.h"
#include "lockstep/recipes/report.h"
#include "lockstep/recipes/sft_setup.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/train/console.h"
#include "lockstep/train/fingerprint.h"
#include "lockstep/train/settings.h"
#include "lockstep/train/update.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>

namespace lockstep::recipes {
namespace {

/// Of the memory that is free at the start, what activations may take: the rest is for what grows unseen (libraries'
/// scratch space, the page cache that loading wants, the save at the end).
constexpr double kActivationShare = 0.6;

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

std::unique_ptr<comm::Communicator> join(const launch::WorkerEnvironment& environment,
                                         const launch::LaunchOptions& options) {
  if (environment.world_size == 1) return comm::make_self();
  if (!environment.run_folder) {
    throw Error::environment("LOCKSTEP_RUN_FOLDER is not set, so {} processes cannot find each other. Start them with "
                             "`lockstep sft --nproc_per_node {}`.",
                             environment.world_size, environment.world_size);
  }
  comm::GlooOptions gloo;
  gloo.rank = environment.world_rank;
  gloo.size = environment.world_size;
  gloo.store_file = (*environment.run_folder / "store").string();
  if (environment.master_port) {
    gloo.master_addr = environment.master_addr;
    gloo.master_port = static_cast<uint16_t>(*environment.master_port);
  }
  gloo.restart_count = environment.restart_count;
  gloo.own_addr = environment.node_addr;
  gloo.join_timeout = Milliseconds(static_cast<int64_t>(1e3 * options.start_timeout));
  gloo.timeout = std::chrono::seconds(options.ddp_timeout);
  return comm::make_gloo(gloo);
}

/// All ranks must have made the same tokens: a template may print the date, a file may have changed meanwhile.
void require_equal_data(const data::Dataset& dataset, comm::Communicator& comm) {
  const std::vector<std::string> all = comm.all_gather_text(dataset.report.fingerprint, "fingerprint of the data");
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error::data("ranks 0 and {} read different tokens from {}. Did a file change meanwhile, or does the chat "
                      "template print the time? Start again.",
                      rank, fmt::join(dataset.report.files, ", "));
  }
}

void check_positions(const model::DecoderConfig& config, const data::DatasetReport& report) {
  if (report.longest <= config.max_position_embeddings) return;
  log::warn("sft", "the longest sample has {} tokens, the model was trained on positions up to {}; what it does beyond "
            "is untrained. Lower --max_length to {} or shorten the data.",
            report.longest, config.max_position_embeddings, config.max_position_embeddings);
}

train::KeepChoice keep_choice(const SftOptions& options, const train::Trainer& trainer,
                              const launch::WorkerEnvironment& environment, int threads) {
  const auto layers = trainer.decoder().num_layers();
  const int64_t tokens = options.train.grain_tokens;
  const int64_t all = threads * layers * trainer.decoder().saved_bytes_per_layer(tokens, model::Keep::All);
  const int64_t input_only = threads * layers * trainer.decoder().saved_bytes_per_layer(tokens, model::Keep::InputOnly);
  const auto budget = static_cast<int64_t>(kActivationShare * static_cast<double>(train::available_memory()) /
                                           environment.local_world_size);
  return train::choose_keep(train::recompute(options.train), all, input_only, budget);
}

/// Seconds from the start of the command (the front program says when) to now.
double seconds_since_command() {
  const char* started = std::getenv("LOCKSTEP_STARTED");
  if (started == nullptr) return 0;
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now - std::strtod(started, nullptr);
}

/// The facts that define the run's result; stored beside it.
std::string run_json(const ParsedSft& parsed, const Batch& batch, const train::Trainer& trainer) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(dump_sft(parsed));
  json["run"] = {{"global_batch_size", batch.global},
                 {"processes", batch.processes},
                 {"grain_tokens", parsed.options.train.grain_tokens},
                 {"min_grains", parsed.options.train.min_grains},
                 {"total_updates", trainer.order().total_updates()}};
  return json.dump(2) + "\n";
}

/// Those of an earlier run are kept until this one has something better to show.
void start_records(checkpoint::OutputFolder& output, const std::string& run_json) {
  const bool had_run = output.keep_previous("run.json");
  const bool had_metrics = output.keep_previous("metrics.jsonl");
  if (had_run || had_metrics) {
    log::info("sft", "{} holds an earlier run; its run.json and metrics.jsonl are kept as *.previous.*",
              output.path().string());
  }
  write_file_atomically(output.path() / "run.json", run_json);
}

struct TrainResult {
  double seconds = 0;
  double first_forward_s = 0;
  double loss_sum = 0;
  int64_t num_samples = 0;
  train::UpdateMetrics last;
};

/// What transformers' scripts leave as train_results.json, and what scripts/bench reads.
std::string results_json(const TrainResult& result) {
  const auto updates = static_cast<double>(std::max<int64_t>(1, result.last.update));
  nlohmann::ordered_json json = {{"epoch", result.last.epoch},
                                 {"num_tokens", result.last.num_tokens},
                                 {"train_loss", result.loss_sum / updates},
                                 {"train_runtime", result.seconds},
                                 {"train_samples_per_second", static_cast<double>(result.num_samples) / result.seconds},
                                 {"train_steps_per_second", updates / result.seconds},
                                 {"seconds_to_first_forward", result.first_forward_s},
                                 {"peak_resident_bytes", result.last.peak_resident_bytes}};
  return json.dump(2) + "\n";
}

train::ConsoleOptions console_options(const SftOptions& options, const launch::WorkerEnvironment& environment,
                                      int64_t total_updates) {
  train::ConsoleOptions console;
  console.total_updates = total_updates;
  console.logging_steps = logging_steps(options.train, total_updates);
  console.log_first = options.train.logging_first_step;
  console.log_steps = options.train.logging_strategy != "no";
  console.bar = environment.terminal_columns.has_value() && !options.train.disable_tqdm.value_or(false);
  console.columns = environment.terminal_columns.value_or(80);
  return console;
}

/// All updates, one line of metrics each.
TrainResult train_all(train::Trainer& trainer, const SftOptions& options, const checkpoint::OutputFolder* output,
                      launch::WorkerLink& link) {
  const int64_t total = trainer.order().total_updates();
  std::optional<train::MetricsFile> file;
  std::optional<train::Console> console;
  if (output != nullptr) {
    file.emplace(output->path() / "metrics.jsonl");
    console.emplace(console_options(options, link.environment(), total));
    console->start();
  }
  TrainResult result;
  const Clock::time_point start = Clock::now();
  for (int64_t update = 1; update <= total; ++update) {
    link.phase(fmt::format("update {} of {}", update, total));
    result.last = trainer.run_update(update);
    result.loss_sum += result.last.loss;
    result.num_samples += result.last.num_samples;
    if (file) file->append(result.last);
    if (console) console->update(result.last);
  }
  result.seconds = seconds_since(start);
  return result;
}

/// Collective; rank 0 has the output folder and writes.
void save(train::Trainer& trainer, const SftOptions& options, const Texts& texts, const TrainResult& result,
          checkpoint::OutputFolder* output) {
  const bool writes = output != nullptr;
  const fs::path aside = writes ? output->staging() : fs::path();

  checkpoint::ModelFolderOptions model;
  model.source = *options.model.model_name_or_path;
  model.folder = aside;
  model.dtype = saved_dtype(options.model, trainer.stored_dtype());
  if (options.data.chat_template_path) model.chat_template = texts.template_source;
  checkpoint::save_model_folder(
      trainer.layout(), [&](tensor::ParamId id) { return trainer.gather(id, shard::State::Master); }, writes, model);
  if (options.train.save_optimizer_state) {
    checkpoint::save_optimizer_state(
        trainer.layout(), trainer.num_updates_applied(),
        [&](tensor::ParamId id, const std::string& kind) {
          return trainer.gather(id, kind == "master"    ? shard::State::Master
                                    : kind == "exp_avg" ? shard::State::ExpAvg
                                                        : shard::State::ExpAvgSq);
        },
        writes, aside / "optimizer_state.safetensors");
  }
  if (!writes) return;
  write_file_atomically(aside / "train_results.json", results_json(result));
  output->commit();
}

std::string last_line(const SftOptions& options, const train::Trainer& trainer, const TrainResult& result) {
  const int64_t skipped = result.last.update - trainer.num_updates_applied();
  const std::string left_out = skipped > 0 ? fmt::format(", {} of them SKIPPED (not finite)", skipped) : "";
  const std::string time = result.seconds < 60 ? fmt::format("{:.1f} s", result.seconds)
                                               : train::clock_text(result.seconds);
  return fmt::format("Trained {} updates{}, {} tokens in {} (loss {:.4f}). The model is in {}", result.last.update,
                     left_out, result.last.num_tokens, time, result.last.loss, output_folder(options.train));
}

/// What is known before the processes meet.
struct Inputs {
  model::DecoderConfig config;
  Texts texts;
  data::Dataset dataset;
};

Inputs read_inputs(const SftOptions& options, ThreadTeam& team) {
  // Opened for its checks alone: a missing or truncated file is told before the data is read.
  tensor::WeightFiles::open(*options.model.model_name_or_path);
  Inputs inputs{model::read_decoder_config(*options.model.model_name_or_path), load_texts(options), {}};
  const text::ChatTemplate* chat_template = inputs.texts.chat_template ? &*inputs.texts.chat_template : nullptr;
  inputs.dataset = data::load_sft_dataset(options.data, inputs.texts.tokenizer, chat_template,
                                          inputs.config.vocab_size, team);
  check_positions(inputs.config, inputs.dataset.report);
  return inputs;
}

void print_report(const ParsedSft& parsed, const Inputs& inputs, const train::Trainer& trainer,
                  int64_t processes, int threads, const std::string& activations) {
  const SftOptions& options = parsed.options;
  RunFacts facts;
  facts.model_folder = *options.model.model_name_or_path;
  facts.config = inputs.config;
  facts.num_parameters = trainer.layout().num_elements();
  facts.compute_dtype = trainer.params().compute_dtype();
  facts.batch = batch_of(options.train, processes);
  facts.threads = threads;
  facts.total_updates = trainer.order().total_updates();
  facts.updates_per_epoch = trainer.order().updates_per_epoch();
  facts.activations = activations;
  facts.output_folder = output_folder(options.train);
  facts.saved_dtype = checkpoint::dtype_name(saved_dtype(options.model, trainer.stored_dtype()));
  const BalanceReport balance = report_balance(inputs.dataset.rows, trainer.order(), trainer.plan_options(),
                                               processes * threads);
  for (const std::string& line : start_report(facts, inputs.dataset.report, balance)) fmt::print(stderr, "{}\n", line);
  if (const auto note = checkpoint_note(parsed, facts.total_updates)) fmt::print(stderr, "{}\n", *note);
}

}  // namespace

// The job, in the order things happen.
void run_sft(const ParsedSft& parsed, launch::WorkerLink& link) {
  const SftOptions& options = parsed.options;
  const launch::WorkerEnvironment& environment = link.environment();
  const bool speaks = environment.world_rank == 0;
  const int threads = environment.num_threads.value_or(available_cores());
  // A dry run is one process that speaks of all.
  const int64_t processes = parsed.dry_run ? parsed.dry_run_processes : int64_t{environment.world_size};

  link.phase("check the settings");
  train::require_bit_stable_settings();
  std::optional<checkpoint::OutputFolder> output;
  if (speaks && parsed.dry_run) {
    checkpoint::require_usable_output(output_folder(options.train), options.train.overwrite_output_dir);
  } else if (speaks) {
    output.emplace(output_folder(options.train), options.train.overwrite_output_dir);
  }
  ThreadTeam team(threads);

  link.phase("read the model's configuration and the data");
  const Inputs inputs = read_inputs(options, team);

  link.phase("join the other processes");
  const std::unique_ptr<comm::Communicator> comm = join(environment, options.launch);
  require_equal_data(inputs.dataset, *comm);

  link.phase("load the weights");
  std::once_flag first_forward;
  double first_forward_s = 0;
  train::TrainProbes probes;
  probes.after_first_forward = [&] {
    std::call_once(first_forward, [&] { first_forward_s = seconds_since_command(); });
  };
  std::optional<tensor::WeightFiles> weights = tensor::WeightFiles::open(*options.model.model_name_or_path);
  train::Trainer trainer(train_setup(options, inputs.config, static_cast<int64_t>(inputs.dataset.rows.size()),
                                     processes),
                         inputs.dataset.rows, *weights, *comm, team, probes);
  weights.reset();  // the mapped files would count as this process's memory
  const train::KeepChoice keep = keep_choice(options, trainer, environment, threads);
  trainer.set_keep(keep.keep);

  link.phase("compare the kernels of all processes");
  train::require_equal_fingerprints(train::take_fingerprint(trainer.params().compute_dtype()), *comm);
  if (speaks) print_report(parsed, inputs, trainer, processes, threads, keep.reason);
  if (parsed.dry_run) {
    link.done("Dry run: nothing was trained.");
    return;
  }
  checkpoint::OutputFolder* const writer = output ? &*output : nullptr;
  if (writer != nullptr) start_records(*writer, run_json(parsed, batch_of(options.train, processes), trainer));
  TrainResult result = train_all(trainer, options, writer, link);
  result.first_forward_s = first_forward_s;
  if (trainer.num_updates_applied() == 0) {
    throw Error::non_finite("all {} updates were skipped because they were not finite, so there is no trained model to "
                            "save. Lower --learning_rate, or look at the rows that --non_finite stop names.",
                            result.last.update);
  }

  link.phase("save the model");
  trainer.finish();
  save(trainer, options, inputs.texts, result, writer);
  comm->barrier("the end");
  if (speaks) link.done(last_line(options, trainer, result));
}

}  // namespace lockstep::recipes
