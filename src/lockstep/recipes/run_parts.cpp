#include "lockstep/recipes/run_parts.h"

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/optimizer_state.h"
#include "lockstep/comm/recorded.h"
#include "lockstep/recipes/setup.h"
#include "lockstep/train/fingerprint.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

namespace lockstep::recipes {
namespace {

/// Of the memory that is free at the start, what activations may take: the rest is for what grows unseen (libraries'
/// scratch space, the page cache that loading wants, the save at the end).
constexpr double kActivationShare = 0.6;

}  // namespace

std::unique_ptr<comm::Communicator> join(const launch::WorkerEnvironment& environment,
                                         const launch::LaunchOptions& options) {
  if (environment.world_size == 1) return comm::make_self();
  if (!environment.run_folder) {
    throw Error::environment("LOCKSTEP_RUN_FOLDER is not set, so {} processes cannot find each other. Start them with "
                             "the command itself and `--nproc_per_node {}`.",
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
  return comm::make_recorded(comm::make_processes(gloo, comm::carrier_of_environment()));
}

void require_equal_data(const std::string& fingerprint, const char* what, comm::Communicator& comm) {
  const std::vector<std::string> all = comm.all_gather_text(fingerprint, what);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error::data("{}: ranks 0 and {} read different rows: {} against {}. All ranks need the same data: did a file change "
                      "meanwhile, or does a chat template print the time? Start again.",
                      what, rank, all[0], all[rank]);
  }
}

RunBasis take_basis(train::Trainer& trainer, const train::Fingerprint& fingerprint, comm::Communicator& comm) {
  train::require_equal_fingerprints(fingerprint, comm);
  RunBasis basis;
  for (const uint64_t hash : trainer.master_hashes()) basis.weights.push_back(to_hex(hash));
  for (const auto& [name, hash] : fingerprint.kernels) basis.kernels.emplace_back(name, to_hex(hash));
  return basis;
}

double seconds_since_command() {
  const char* started = std::getenv("LOCKSTEP_STARTED");
  if (started == nullptr) return 0;
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now - std::strtod(started, nullptr);
}

train::KeepChoice keep_choice(const train::TrainOptions& options, const train::Task& task,
                              const launch::WorkerEnvironment& environment, int threads) {
  const int64_t grains = std::max<int64_t>(1, threads / options.grain_threads);  // that are under way together
  const int64_t all = grains * task.saved_bytes(options.grain_tokens, model::Keep::All);
  const int64_t input_only = grains * task.saved_bytes(options.grain_tokens, model::Keep::InputOnly);
  const auto budget = static_cast<int64_t>(kActivationShare * static_cast<double>(train::available_memory()) /
                                           environment.local_world_size);
  return train::choose_keep(train::recompute(options), all, input_only, budget);
}

void start_records(checkpoint::OutputFolder& output, const std::string& run_json) {
  const bool had_run = output.keep_previous("run.json");
  const bool had_metrics = output.keep_previous("metrics.jsonl");
  if (had_run || had_metrics) {
    log::info("run", "{} holds an earlier run; its run.json and metrics.jsonl are kept as *.previous.*",
              output.path().string());
  }
  write_file_atomically(output.path() / "run.json", run_json);
}

train::ConsoleOptions console_options(const train::TrainOptions& options,
                                      const launch::WorkerEnvironment& environment, int64_t total_updates) {
  train::ConsoleOptions console;
  console.total_updates = total_updates;
  console.logging_steps = train::steps_of(options.logging_steps, total_updates);
  console.log_first = options.logging_first_step;
  console.log_steps = options.logging_strategy != "no";
  console.bar = environment.terminal_columns.has_value() && !options.disable_tqdm.value_or(false);
  console.columns = environment.terminal_columns.value_or(80);
  return console;
}

std::string results_json(const RunTotals& totals) {
  const auto updates = static_cast<double>(std::max<int64_t>(1, totals.num_updates));
  nlohmann::ordered_json json = {{"epoch", totals.last.epoch},
                                 {"num_tokens", totals.last.num_tokens},
                                 {"train_loss", totals.loss_sum / updates},
                                 {"train_runtime", totals.seconds},
                                 {"train_samples_per_second", static_cast<double>(totals.num_samples) / totals.seconds},
                                 {"train_steps_per_second", updates / totals.seconds},
                                 {"seconds_to_first_forward", totals.first_forward_s},
                                 {"peak_resident_bytes", totals.last.peak_resident_bytes}};
  return json.dump(2) + "\n";
}

void save_result(train::Trainer& trainer, checkpoint::ModelFolderOptions model, bool with_optimizer_state,
                 const std::string& results_json, checkpoint::OutputFolder* output) {
  const bool writes = output != nullptr;
  if (writes) model.folder = output->staging();
  checkpoint::save_model_folder(
      trainer.layout(), [&](tensor::ParamId id) { return trainer.gather(id, shard::kMasterState); }, writes, model);
  if (with_optimizer_state) {
    const auto states_of = [&](tensor::ParamId id) {
      std::vector<checkpoint::StateTensor> states;
      for (const std::string& name : trainer.state_names(id)) states.push_back({name, trainer.state_shape(id, name)});
      return states;
    };
    checkpoint::save_optimizer_state(
        trainer.layout(), trainer.num_updates_applied(), states_of,
        [&](tensor::ParamId id, const std::string& name) { return trainer.gather(id, name); }, writes,
        model.folder / "optimizer_state.safetensors");
  }
  if (!writes) return;
  write_file_atomically(model.folder / "train_results.json", results_json);
  output->commit();
}

std::string duration_text(double seconds) {
  return seconds < 60 ? fmt::format("{:.1f} s", seconds) : train::clock_text(seconds);
}

Progress::Progress(const train::ConsoleOptions& console, const checkpoint::OutputFolder* output,
                   launch::WorkerLink& link, std::optional<int64_t> updates_done)
    : link_(link) {
  if (output == nullptr) return;
  file_.emplace(output->path() / "metrics.jsonl", updates_done);
  console_.emplace(console);
}

void Progress::on_train_begin(const train::LoopState& /*state*/, train::LoopControl& /*control*/) {
  start_ = Clock::now();
  if (console_) console_->start();
}

void Progress::on_step_begin(const train::LoopState& state, train::LoopControl& /*control*/) {
  link_.phase(fmt::format("update {} of {}", state.update + 1, state.total_updates));
}

void Progress::on_step_end(const train::LoopState& state, train::LoopControl& /*control*/) {
  totals_.last = state.last;
  totals_.loss_sum += state.last.loss;
  totals_.num_samples += state.last.num_samples;
  ++totals_.num_updates;
  totals_.seconds = seconds_since(start_);
  if (file_) file_->append(state.last);
  if (console_) console_->update(state.last);
}

void Progress::on_evaluate(const train::LoopState& state, train::LoopControl& /*control*/) {
  if (!file_) return;
  nlohmann::ordered_json line = {{"step", state.update}, {"epoch", state.epoch}};
  for (const auto& [name, value] : state.last_evaluation) {
    line[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  }
  file_->append_line(line.dump());
}

void Progress::say(const std::string& line) {
  if (!console_) return;
  console_->clear();
  fmt::print(stderr, "{}\n", line);
}

void Progress::on_train_end(const train::LoopState& /*state*/, train::LoopControl& /*control*/) { console_.reset(); }

}  // namespace lockstep::recipes
