#include "lockstep/recipes/sft.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/model_folder.h"
#include "lockstep/checkpoint/output_folder.h"
#include "lockstep/data/examples.h"
#include "lockstep/recipes/report.h"
#include "lockstep/recipes/run_parts.h"
#include "lockstep/recipes/setup.h"
#include "lockstep/text/chat_template.h"
#include "lockstep/text/tokenizer.h"
#include "lockstep/train/fingerprint.h"
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

checkpoint::ModelFolderOptions model_folder(const SftOptions& options, const Texts& texts, at::ScalarType stored) {
  checkpoint::ModelFolderOptions model;
  model.source = *options.model.model_name_or_path;
  model.dtype = saved_dtype(options.model, stored);
  if (options.data.chat_template_path) model.chat_template = texts.template_source;
  return model;
}

std::string last_line(const SftOptions& options, const train::Trainer& trainer, const RunTotals& totals) {
  const int64_t skipped = totals.last.update - trainer.num_updates_applied();
  const std::string left_out = skipped > 0 ? fmt::format(", {} of them SKIPPED (not finite)", skipped) : "";
  return fmt::format("Trained {} updates{}, {} tokens in {} (loss {:.4f}). The model is in {}", totals.last.update,
                     left_out, totals.last.num_tokens, duration_text(totals.seconds), totals.last.loss,
                     output_folder(options.train));
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
  facts.architecture = inputs.config.architecture;
  facts.num_layers = inputs.config.num_layers;
  facts.num_parameters = trainer.layout().num_elements();
  facts.compute_dtype = trainer.params().compute_dtype();
  facts.batch = batch_of(options.train, processes);
  facts.threads = threads;
  facts.total_updates = trainer.order().total_updates();
  facts.updates_per_epoch = trainer.order().updates_per_epoch();
  facts.activations = activations;
  facts.output_folder = output_folder(options.train);
  facts.saved_dtype = checkpoint::dtype_name(saved_dtype(options.model, trainer.stored_dtype()));
  const BalanceReport balance = report_balance(trainer.task().sizes(), trainer.order(), trainer.plan_options(),
                                               processes * threads);
  for (const std::string& line : start_report(facts, data::report_lines(inputs.dataset.report), balance)) fmt::print(stderr, "{}\n", line);
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
  const train::SftTask task(inputs.config, inputs.dataset.rows, compute_dtype(options.train),
                            {.attention_dropout = inputs.config.attention_dropout,
                             .seed = static_cast<uint64_t>(options.train.seed)});
  const data::OrderOptions order =
      order_options(options.train, {options.data.train_sampling_strategy, options.data.dataloader_drop_last},
                    static_cast<int64_t>(inputs.dataset.rows.size()), batch_of(options.train, processes).global);
  train::Trainer trainer(train_setup(options.train, options.optim, order), task, *weights, *comm, team, probes);
  weights.reset();  // the mapped files would count as this process's memory
  const train::KeepChoice keep = keep_choice(options.train, task, environment, threads);
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
  Progress progress(console_options(options.train, environment, trainer.order().total_updates()), writer, link);
  train::LoopParts parts;
  parts.callbacks = {&progress};
  train::run_loop(trainer, *comm, parts);
  RunTotals totals = progress.totals();
  totals.first_forward_s = first_forward_s;
  if (trainer.num_updates_applied() == 0) {
    throw Error::non_finite("all {} updates were skipped because they were not finite, so there is no trained model to "
                            "save. Lower --learning_rate, or look at the rows that --non_finite stop names.",
                            totals.last.update);
  }

  link.phase("save the model");
  trainer.finish();
  save_result(trainer, model_folder(options, inputs.texts, trainer.stored_dtype()),
              options.checkpoints.save_optimizer_state, results_json(totals), writer);
  comm->barrier("the end");
  if (speaks) link.done(last_line(options, trainer, totals));
}

}  // namespace lockstep::recipes
