#include "lockstep/recipes/replay.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/hash.h"
#include "lockstep/checkpoint/checkpoint_folder.h"
#include "lockstep/checkpoint/run_identity.h"
#include "lockstep/recipes/checkpoints.h"
#include "lockstep/recipes/replay_records.h"
#include "lockstep/recipes/replay_states.h"
#include "lockstep/recipes/replay_words.h"
#include "lockstep/recipes/run_basis.h"
#include "lockstep/recipes/run_parts.h"
#include "lockstep/train/console.h"
#include "lockstep/train/loop.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace lockstep::recipes {
namespace {

constexpr std::string_view kBeginning = "start";

/// What rank 0 has chosen for all.
struct ReplayPlan {
  int64_t update = 0;                  ///< the last one
  std::string start;                   ///< a checkpoint's folder; empty: the run's beginning
  std::vector<ReplayStart> to_compare; ///< checkpoints taken on the way
};

std::string plan_text(const ReplayPlan& plan) {
  nlohmann::json json = {{"update", plan.update}, {"start", plan.start}, {"to_compare", nlohmann::json::array()}};
  for (const ReplayStart& one : plan.to_compare) json["to_compare"].push_back({one.update, one.folder});
  return json.dump();
}

ReplayPlan plan_from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  ReplayPlan plan{json["update"], json["start"], {}};
  for (const auto& one : json["to_compare"]) plan.to_compare.push_back({one[0], one[1]});
  return plan;
}

/// False too for one that was removed a moment ago.
bool holds_optimizer(const std::filesystem::path& folder) {
  try {
    return checkpoint::read_manifest(folder).optimizer;
  } catch (const Error&) {
    return false;
  }
}

/// `with_optimizer`: those alone that training can go on from.
std::vector<ReplayStart> complete_checkpoints(const std::filesystem::path& run, bool with_optimizer) {
  std::vector<ReplayStart> complete;
  const auto is_of_the_run = of_the_run_in(run);
  for (const checkpoint::FoundCheckpoint& found : checkpoint::list_checkpoints(run)) {
    if (!found.problem.empty() || !is_of_the_run(found.path)) continue;
    if (with_optimizer && !holds_optimizer(found.path)) continue;
    complete.push_back({found.update, found.path.string()});
  }
  return complete;
}

/// What --checkpoint names.
ReplayStart named_start(const std::string& wish, int64_t update) {
  if (!std::filesystem::is_directory(wish)) {
    throw Error::usage("--checkpoint = {}: there is no such folder. Was it removed by --save_total_limit?", wish);
  }
  const int64_t taken_after = checkpoint::read_manifest(wish).update;
  if (taken_after < update) return {taken_after, wish};
  throw Error::usage("--checkpoint = {}: was taken after update {}, which is not before --update {}. Name an earlier one, or leave "
                     "it out.", wish, taken_after, update);
}

/// Hashes every byte: what is damaged on the disk is not worth computing with.
void require_undamaged(const std::string& folder, ThreadTeam& team) {
  const std::vector<std::string> problems = checkpoint::problems_of(folder, checkpoint::Verify::Content, &team);
  if (problems.empty()) return;
  throw Error::data("{}{}. It was damaged on the disk after it was written, or removed meanwhile; go on from another one, and "
                    "replay from another one with --checkpoint DIR or --checkpoint start.",
                    problems.front(), problems.size() == 1 ? "" : fmt::format(" ({} more such)", problems.size() - 1));
}

ReplayPlan make_plan(const ReplayRequest& request, ThreadTeam& team) {
  ReplayPlan plan{request.update, {}, {}};
  std::optional<ReplayStart> start;
  if (!request.checkpoint) {
    start = choose_start(complete_checkpoints(request.run, true), request.update);
  } else if (*request.checkpoint != kBeginning) {
    start = named_start(*request.checkpoint, request.update);
  }
  if (start) {
    require_undamaged(start->folder, team);
    plan.start = start->folder;
  }
  const int64_t from = start ? start->update : 0;
  for (ReplayStart& one : complete_checkpoints(request.run, false)) {
    if (one.update > from && one.update <= request.update) plan.to_compare.push_back(std::move(one));
  }
  return plan;
}

/// Rank 0's text, on every rank.
std::string from_rank_0(comm::Communicator& comm, const std::string& mine, const char* what) {
  return comm.all_gather_text(comm.rank() == 0 ? mine : "", what).front();
}

/// `record`: a run.json of the run.
void require_run_of(const std::filesystem::path& record, const std::string& run_json) {
  const std::vector<std::string> defines = {"run"};
  const checkpoint::RunComparison comparison =
      checkpoint::compare_runs(read_file(record), run_json, {.must_equal = defines, .ignored = {}});
  if (comparison.must_equal.empty()) return;
  throw Error::usage("{}: data, model or numbers are not what the run had (stored -> now):\n{}\nA replay needs them as they were: "
                     "put the files back, then start it again.",
                     record.string(), checkpoint::describe(comparison.must_equal));
}

std::vector<std::string> hash_texts(const std::vector<uint64_t>& hashes) {
  std::vector<std::string> texts;
  for (const uint64_t hash : hashes) texts.push_back(to_hex(hash));
  return texts;
}

UpdateRecord record_of(const train::UpdateMetrics& metrics) {
  return {metrics.update,        metrics.loss,    metrics.grad_norm,
          metrics.learning_rate, metrics.skipped, hash_texts(metrics.block_hashes)};
}

class Replay final : public train::LoopCallback {
 public:
  Replay(const ReplayRequest& request, train::Trainer& trainer, comm::Communicator& comm, ThreadTeam& team,
         launch::WorkerLink& link)
      : request_(request), trainer_(trainer), comm_(comm), team_(team), link_(link) {
    facts_.run = request.run.string();
    facts_.num_processes = comm.size();
    facts_.num_threads = team.size();
  }

  void run(const std::string& run_json, const train::TrainOptions& options) {
    facts_.exact = options.reduction == "exact";
    begin(run_json);
    if (differs()) return;
    if (comm_.rank() == 0) {
      console_.emplace(console_options(options, link_.environment(), plan_.update));
      console_->start();
    }
    train::LoopParts parts;
    parts.flow.logging = train::Strategy::No;
    parts.callbacks = {this};
    parts.updates_done = facts_.start_update;
    try {
      train::run_loop(trainer_, comm_, parts);
    } catch (const Error& problem) {
      console_.reset();
      if (problem.kind() != ErrorKind::NonFinite) throw;
      throw Error(ErrorKind::OtherBits, fmt::format("{}\nBut the run has logged finite numbers up to update {}: the replay gives another result.",
                                          problem.what(), plan_.update));
    }
    console_.reset();
    if (differs()) return;
    for (const std::string& note : notes_) say(note);
    comm_.barrier("the end");
    if (comm_.rank() == 0) link_.done(same_bits_text(facts_.start_update + 1, plan_.update, without_hashes_));
  }

  void on_step_begin(const train::LoopState& state, train::LoopControl& /*control*/) override {
    link_.phase(fmt::format("replay update {}", state.update + 1));
  }

  void on_step_end(const train::LoopState& state, train::LoopControl& control) override {
    control.should_training_stop = state.update >= plan_.update;
    if (comm_.rank() == 0) {
      console_->update(state.last);
      compare(record_of(state.last));
    }
    for (const ReplayStart& one : plan_.to_compare) {
      if (one.update == state.update) compare_checkpoint(one);
    }
    control.should_training_stop |= !verdict_.empty();
  }

 private:
  void begin(const std::string& run_json) {
    link_.phase("choose the checkpoint");
    if (comm_.rank() == 0) {
      require_run_of(request_.run / "run.json", run_json);
      const std::filesystem::path file = request_.run / "metrics.jsonl";
      logged_ = read_update_records(read_file(file), file.string());
      plan_ = make_plan(request_, team_);
      plan_.update = update_to_replay(logged_, request_.update, file.string());
      if (!plan_.start.empty()) require_run_of(std::filesystem::path(plan_.start) / "run.json", run_json);
      facts_.start = plan_.start;
      compare_basis(basis_of(run_json, "run.json"));
    }
    plan_ = plan_from_text(from_rank_0(comm_, plan_text(plan_), "what is replayed"));
    if (plan_.update > trainer_.order().total_updates()) {
      throw Error::usage("--update = {}: with the options of its run.json the run has {} updates. It was resumed with others, "
                         "which only a checkpoint from this update on would know: replay an earlier update.", plan_.update,
                         trainer_.order().total_updates());
    }
    if (!plan_.start.empty()) go_to_start(run_json);
    say(fmt::format("  {:<12} {} of {} {}", "replays", updates_text(facts_.start_update + 1, plan_.update), facts_.run,
                    from_where(facts_)));
    for (const std::string& warning : warnings_) say(fmt::format("  {:<12} {}", "warning", warning));
    if (!facts_.exact) say("  warning      the run used --reduction float32: its bits hold in its own layout alone");
    compare_start();
  }

  /// Rank 0 alone: what tells why bits will differ, before any is computed.
  void compare_basis(const RunBasis& now) {
    const std::filesystem::path beginning = request_.run / "run.json", record = record_of_update(request_.run, plan_.update);
    const RunBasis began_with = basis_of(read_file(beginning), beginning.string());
    if (began_with.weights.empty()) {
      warnings_.push_back("an older version wrote the run's record, without hashes of its first weights: it would not be noticed if "
                          "the model's files were others now");
    }
    const std::vector<size_t> blocks = other_weights(began_with, now);
    if (!blocks.empty()) {
      const std::string text = other_weights_text(facts_, blocks, now.weights.size());
      if (plan_.start.empty()) throw Error::usage("{}", text);
      warnings_.push_back(text);
    }
    facts_.other_kernels = other_kernels(basis_of(read_file(record), record.string()), now);
    if (!facts_.other_kernels.empty()) warnings_.push_back(other_kernels_text(facts_));
  }

  void go_to_start(const std::string& run_json) {
    link_.phase("read the checkpoint");
    try {
      const std::optional<Resumed> resumed = find_resumed(request_.run, plan_.start, run_json);
      restore(trainer_, *resumed);
      facts_.start = plan_.start;
      facts_.start_update = resumed->cursor.update;
    } catch (const Error& problem) {
      if (std::filesystem::exists(std::filesystem::path(plan_.start) / checkpoint::kManifestFile)) throw;
      throw Error::data("{}: was removed while it was read ({}). Does the run go on with --save_total_limit? Start the replay "
                        "again.", plan_.start, problem.what());
    }
  }

  /// The checkpoint's weights against what was logged when it was taken.
  void compare_start() {
    const std::vector<std::string> hashes = hash_texts(trainer_.master_hashes());
    const auto logged = logged_.find(facts_.start_update);
    if (logged != logged_.end()) {
      UpdateRecord found = logged->second;  // of losses a checkpoint says nothing
      found.block_hashes = hashes;
      const UpdateDifference difference = compare_update(logged->second, found);
      if (difference.any()) verdict_ = other_start_text(logged->second, found, difference, facts_);
    }
  }

  /// Rank 0 alone.
  void compare(const UpdateRecord& replayed) {
    const auto logged = logged_.find(replayed.update);
    if (logged == logged_.end() || logged->second.block_hashes.empty()) {
      ++without_hashes_;
      return;
    }
    const UpdateDifference difference = compare_update(logged->second, replayed);
    if (difference.any()) verdict_ = other_bits_text(logged->second, replayed, difference, facts_);
  }

  void compare_checkpoint(const ReplayStart& taken) {
    link_.phase("compare with " + taken.folder);
    const StateComparison found = compare_states(trainer_, taken.folder, comm_);
    if (!verdict_.empty()) return;
    if (!found.differences.empty()) {
      verdict_ = other_checkpoint_text(taken.update, taken.folder, found.differences, facts_);
    } else if (!found.unreadable.empty()) {
      notes_.push_back(fmt::format("note: not compared with {}: {}", taken.folder, found.unreadable));
    } else {
      notes_.push_back(fmt::format("  {:<12} {} holds the replayed state, bit for bit", "", taken.folder));
    }
  }

  /// Collective. Rank 0 throws what was found; the others end, so that none of them is named as the one that failed.
  bool differs() {
    const std::string verdict = from_rank_0(comm_, verdict_, "the outcome of the replay");
    if (!verdict.empty() && comm_.rank() == 0) throw Error(ErrorKind::OtherBits, verdict);
    return !verdict.empty();
  }

  void say(const std::string& line) {
    if (comm_.rank() != 0) return;
    if (console_) console_->clear();
    fmt::print(stderr, "{}\n", line);
  }

  const ReplayRequest& request_;
  train::Trainer& trainer_;
  comm::Communicator& comm_;
  ThreadTeam& team_;
  launch::WorkerLink& link_;
  ReplayPlan plan_;
  ReplayFacts facts_;
  UpdateRecords logged_;               ///< rank 0 alone
  std::optional<train::Console> console_;
  int64_t without_hashes_ = 0;
  std::string verdict_;                ///< what the first difference is; rank 0's counts
  std::vector<std::string> notes_, warnings_;
};

}  // namespace

void run_replay(const ReplayRequest& request, const std::string& run_json, const train::TrainOptions& options,
                train::Trainer& trainer, comm::Communicator& comm, ThreadTeam& team, launch::WorkerLink& link) {
  if (trainer.follows_metric()) {
    throw Error::usage("the run's learning rate followed its evaluations (--lr_scheduler_type), which a replay does not make. "
                       "Continue it from a checkpoint into another --output_dir instead, and compare the two metrics.jsonl.");
  }
  Replay(request, trainer, comm, team, link).run(run_json, options);
}

}  // namespace lockstep::recipes
