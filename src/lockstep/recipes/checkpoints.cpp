#include "lockstep/recipes/checkpoints.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/run_identity.h"
#include "lockstep/recipes/run_basis.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <random>
#include <string_view>
#include <utility>

namespace lockstep::recipes {
namespace {

using OrderedJson = nlohmann::ordered_json;

/// What a run cannot change half-way and end in the same bits.
const std::vector<std::string> kDefinesTheRun = {"run"};
/// Where and how, not what.
const std::vector<std::string> kNeverTold = {"cursor", "id", "weights", "kernels", "origins", "options.output_dir", "options.resume_from_checkpoint",
                                             "options.overwrite_output_dir", "options.profile"};

std::string with_cursor(const std::string& run_json, const train::RunCursor& cursor, const optim::MetricSchedule* schedule) {
  OrderedJson json = OrderedJson::parse(run_json);
  json["cursor"] = {
      {"update", cursor.update}, {"updates_applied", cursor.updates_applied}, {"num_tokens", cursor.num_tokens}};
  if (schedule != nullptr) json["cursor"]["schedule"] = OrderedJson::parse(schedule->state());
  return json.dump(2) + "\n";
}

train::RunCursor cursor_of(const std::string& run_json, const std::filesystem::path& folder) {
  const auto json = nlohmann::json::parse(run_json, nullptr, false);
  try {
    const auto& cursor = json.at("cursor");
    return {cursor.at("update"), cursor.at("updates_applied"), cursor.at("num_tokens")};
  } catch (const nlohmann::json::exception& problem) {
    throw Error::data("{}: has no usable cursor ({}). Resume from another checkpoint.", (folder / "run.json").string(),
                      problem.what());
  }
}

std::string identity_of(const std::filesystem::path& run_file) {
  std::error_code ignored;
  if (!std::filesystem::exists(run_file, ignored)) return {};
  const auto json = nlohmann::json::parse(read_file(run_file), nullptr, false);
  return json.is_object() && json.contains("id") && json["id"].is_string() ? json["id"].get<std::string>() : std::string();
}

std::string schedule_name(const std::string& run_json) {
  return nlohmann::json::parse(run_json).value(nlohmann::json::json_pointer("/options/lr_scheduler_type/value"), std::string());
}

/// "options.learning_rate.value" -> "learning_rate"; nothing for what only says where a value came from.
std::string option_name(std::string field) {
  if (field.ends_with(".origin")) return {};
  if (field.starts_with("options.")) field.erase(0, 8);
  if (field.ends_with(".value")) field.erase(field.size() - 6);
  return field;
}

/// "--seed" for "run.seed": what has a flag is told by it.
std::string flag_of(const std::string& field) {
  static const std::map<std::string_view, std::string_view> kWords = {
      {"run.global_batch_size", "--global_batch_size"},
      {"run.seed", "--seed"},
      {"run.data_seed", "--data_seed (without it, --seed)"},
      {"run.bf16", "--bf16"},
      {"run.reduction", "--reduction"},
      {"run.grain_tokens", "--grain_tokens"},
      {"run.min_grains", "--min_grains"},
      {"run.grain_threads", "--grain_threads"},
      {"run.optim", "--optim"},
      {"run.updates_per_epoch", "updates per epoch (of the data, --global_batch_size and --dataloader_drop_last)"},
      {"run.architecture", "architecture (of --model_name_or_path)"},
      {"run.num_labels", "number of labels (of the data)"},
      {"run.data", "hash of the rows (of the data files, their columns, --max_length and the tokenizer)"},
      {"run.loss", "loss_name"}};
  const auto found = kWords.find(field);
  return found == kWords.end() ? field : std::string(found->second);
}

/// What may not differ, by its flags.
checkpoint::RunComparison in_flags(checkpoint::RunComparison comparison) {
  for (checkpoint::RunDifference& one : comparison.must_equal) {
    one.field = flag_of(one.field);
    if (one.field != "--grain_threads") continue;
    for (std::string* value : {&one.stored, &one.current}) {
      if (*value == "(absent)") *value = "1";  // a run without teams does not have the field
    }
  }
  return comparison;
}

/// What a field of an option holds; an option that nobody gave is null or was not there.
std::string value_words(const std::string& value) { return value == "null" || value == "(absent)" ? "not given" : value; }

/// The usual slip: another number of processes, and the batch follows it.
void require_same_batch(const checkpoint::RunComparison& comparison, const std::string& checkpoint) {
  if (comparison.must_equal.size() != 1 || comparison.must_equal[0].field != "run.global_batch_size") return;
  const auto& [field, stored, current] = comparison.must_equal[0];
  throw Error::usage("--resume_from_checkpoint {}: the run has {} samples per update, and per_device_train_batch_size x processes x "
                     "gradient_accumulation_steps is {} now. Add --global_batch_size {}.", checkpoint, stored, current, stored);
}

}  // namespace

std::string with_identity(const std::string& run_json, const std::string& continued) {
  OrderedJson json = OrderedJson::parse(run_json);
  const auto before = continued.empty() ? OrderedJson() : OrderedJson::parse(continued);
  if (before.contains("id")) {
    json["id"] = before["id"];
  } else {
    std::random_device entropy;
    json["id"] = fmt::format("{:08x}{:08x}", entropy(), entropy());
  }
  // A continued run began with the weights of its first start.
  if (before.contains("weights")) {
    json["weights"] = before["weights"];
  } else if (!continued.empty()) {
    json.erase("weights");
  }
  return json.dump(2) + "\n";
}

std::function<bool(const std::filesystem::path&)> of_the_run_in(const std::filesystem::path& output) {
  return [id = identity_of(output / "run.json")](const std::filesystem::path& checkpoint) {
    if (id.empty()) return true;
    const std::string other = identity_of(checkpoint / "run.json");
    return other.empty() || other == id;
  };
}

Checkpoints::Checkpoints(CheckpointSetup setup, train::Trainer& trainer, comm::Communicator& comm, Records& records)
    : setup_(std::move(setup)), trainer_(trainer), comm_(comm), records_(records), writer_(comm, setup_.output) {
  trainer_.set_before_step([this] { note(writer_.wait()); });
}

void Checkpoints::save(const train::LoopState& state) {
  if (writer_.saving()) note(writer_.finish());
  checkpoint::CheckpointJob job;
  job.update = state.update;
  job.weights = checkpoint::weight_plans(trainer_.layout(), setup_.model.dtype);
  job.optimizer = !setup_.only_model;
  for (const shard::OwnedState& owned : trainer_.owned_states()) {
    job.slices.push_back({trainer_.layout().spec(owned.param).name, owned.state, owned.begin, owned.end, owned.numel,
                          owned.values.data()});
  }
  if (comm_.rank() == 0) {
    metrics::TrainerState records = records_.at(state);
    const bool is_best = records.best_global_step == state.update;
    if (is_best) records_.note_best_checkpoint((setup_.output / checkpoint::checkpoint_name(state.update)).string());
    job.files = checkpoint::side_files(setup_.model);
    job.files.push_back({"trainer_state.json", metrics::to_json(records_.at(state))});
    job.files.push_back({"run.json", with_cursor(setup_.run_json, trainer_.cursor(), setup_.schedule)});
  }
  writer_.begin(std::move(job));
}

void Checkpoints::finish() { note(writer_.finish()); }

void Checkpoints::note(const checkpoint::WaitResult& result) {
  stall_s_ += result.stall_s;
  if (!result.published) return;
  ++num_saved_;
  newest_ = result.published->folder;
  log::debug("checkpoint", "{}: {} bytes, stall {:.3f} s", newest_.string(), result.published->num_bytes,
             result.published->stall_s);
  if (comm_.rank() == 0) remove_old();
}

void Checkpoints::remove_old() {
  std::vector<int64_t> updates, keep;
  std::vector<std::filesystem::path> paths;
  const auto is_ours = of_the_run_in(setup_.output);
  for (const checkpoint::FoundCheckpoint& found : checkpoint::list_checkpoints(setup_.output)) {
    if (found.problem.empty() && is_ours(found.path)) updates.push_back(found.update);
  }
  if (records_.best_update()) keep.push_back(*records_.best_update());
  if (setup_.resumed_from) keep.push_back(*setup_.resumed_from);
  for (const int64_t update : checkpoint::checkpoints_to_remove(updates, setup_.total_limit, keep)) {
    paths.push_back(setup_.output / checkpoint::checkpoint_name(update));
  }
  if (!paths.empty()) writer_.remove(paths);
}

bool wants_resume(const std::optional<std::string>& wish) { return wish && *wish != "false" && !wish->empty(); }

std::optional<Resumed> find_resumed(const std::filesystem::path& output, const std::optional<std::string>& wish,
                                    const std::string& run_json,
                                    const std::function<void(const std::filesystem::path&)>& before) {
  if (!wants_resume(wish)) return std::nullopt;
  std::vector<std::string> passed_over;
  Resumed resumed;
  resumed.folder = checkpoint::find_checkpoint(output, *wish, &passed_over, of_the_run_in(output));
  for (const std::string& text : passed_over) log::warn("resume", "{}", text);
  if (before) before(resumed.folder);
  const checkpoint::CheckpointReader reader(resumed.folder);
  const std::string stored = reader.text("run.json");
  const checkpoint::RunComparison comparison =
      checkpoint::compare_runs(stored, run_json, {.must_equal = kDefinesTheRun, .ignored = kNeverTold});
  require_same_batch(comparison, resumed.folder.string());
  checkpoint::require_same_run(in_flags(comparison), resumed.folder.string());
  for (const checkpoint::RunDifference& change : comparison.changed) {
    const std::string name = option_name(change.field);
    if (!name.empty()) resumed.changed.push_back(fmt::format("{}: {} -> {}", name, value_words(change.stored), value_words(change.current)));
  }
  const std::string where = (resumed.folder / "run.json").string();
  if (const auto others = other_kernels(basis_of(stored, where), basis_of(run_json, "run.json")); !others.empty()) {
    resumed.changed.push_back(fmt::format("kernels: other bits here from {} (another type of processor, or another build of "
                                          "lockstep), so the end is not that of an uninterrupted run", fmt::join(others, ", ")));
  }
  resumed.run_json = stored;
  resumed.cursor = cursor_of(stored, resumed.folder);
  const auto cursor = nlohmann::json::parse(stored).at("cursor");
  const bool same_schedule = schedule_name(stored) == schedule_name(run_json);
  if (same_schedule && cursor.contains("schedule")) resumed.schedule = cursor["schedule"].dump();
  resumed.state = metrics::trainer_state_from_json(reader.text("trainer_state.json"),
                                                   (resumed.folder / "trainer_state.json").string());
  return resumed;
}

void restore(train::Trainer& trainer, const Resumed& resumed) {
  const checkpoint::CheckpointReader reader(resumed.folder);
  trainer.restore(resumed.cursor, [&](const shard::OwnedState& what, std::span<float> out) {
    reader.read(trainer.layout().spec(what.param).name, what.state, what.begin, out);
  });
}

void restore_weights(train::Trainer& trainer, const Resumed& resumed) {
  const checkpoint::CheckpointReader reader(resumed.folder);
  trainer.restore(resumed.cursor, [&](const shard::OwnedState& what, std::span<float> out) {
    if (what.state == shard::kMasterState) {
      reader.read_weights(trainer.layout().spec(what.param).name, what.begin, out);
    } else if (what.values.data() != out.data()) {
      std::copy(what.values.begin(), what.values.end(), out.begin());
    }
  });
}

namespace {

constexpr std::array kStopSignals = {SIGTERM, SIGINT, SIGUSR1};
volatile std::sig_atomic_t stop_asked = 0;
std::array<struct sigaction, kStopSignals.size()> earlier_actions;
sigset_t earlier_mask;

void note_signal(int /*number*/) { stop_asked = 1; }

}  // namespace

StopOnSignal::StopOnSignal() {
  stop_asked = 0;
  struct sigaction action {};
  action.sa_handler = note_signal;
  sigset_t taken;
  sigemptyset(&taken);
  for (size_t i = 0; i < kStopSignals.size(); ++i) {
    // A second Ctrl-C ends a program that no launcher watches.
    action.sa_flags = SA_RESTART | (kStopSignals[i] == SIGINT ? SA_RESETHAND : 0);
    sigaction(kStopSignals[i], &action, &earlier_actions[i]);
    sigaddset(&taken, kStopSignals[i]);
  }
  // A warning that came while the model was loaded has waited: `lockstep` starts its workers with it blocked.
  pthread_sigmask(SIG_UNBLOCK, &taken, &earlier_mask);
}

StopOnSignal::~StopOnSignal() {
  pthread_sigmask(SIG_SETMASK, &earlier_mask, nullptr);
  for (size_t i = 0; i < kStopSignals.size(); ++i) sigaction(kStopSignals[i], &earlier_actions[i], nullptr);
}

void StopOnSignal::on_step_end(const train::LoopState& /*state*/, train::LoopControl& control) {
  if (!asked()) return;
  control.should_save = true;
  control.should_training_stop = true;
}

bool StopOnSignal::asked() { return stop_asked != 0; }

}  // namespace lockstep::recipes
