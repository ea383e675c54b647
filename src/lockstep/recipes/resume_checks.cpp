#include "lockstep/recipes/resume_checks.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/checkpoint/checkpoint_folder.h"
#include "lockstep/checkpoint/run_identity.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace lockstep::recipes {
namespace {

/// Options by which the end of a run is another, though not what was trained.
constexpr std::array<std::string_view, 10> kDecideTheEnd = {
    "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "dataset_test_split", "eval_strategy",
    "prediction_loss_only", "metric_name", "predictions", "dtype", "save_optimizer_state"};

std::string run_id(const nlohmann::json& run) {
  return run.is_object() && run.contains("id") && run["id"].is_string() ? run["id"].get<std::string>() : std::string();
}

nlohmann::json read_run(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path file = folder / "run.json";
  if (!std::filesystem::exists(file, ignored)) return {};
  return nlohmann::json::parse(read_file(file), nullptr, false);
}

bool decides_the_end(const checkpoint::RunDifference& difference) {
  return std::any_of(kDecideTheEnd.begin(), kDecideTheEnd.end(), [&](std::string_view name) {
    return difference.field == fmt::format("options.{}.value", name) || difference.field == fmt::format("options.{}", name);
  });
}

std::string other_checkpoints(const std::filesystem::path& damaged, const std::filesystem::path& output) {
  std::string text;
  for (const checkpoint::FoundCheckpoint& found : checkpoint::list_checkpoints(output)) {
    std::error_code ignored;
    if (!found.problem.empty() || std::filesystem::equivalent(found.path, damaged, ignored)) continue;
    const bool is_newer = found.update > checkpoint::update_of(damaged.filename().string()).value_or(found.update);
    if (is_newer && !text.empty()) break;
    text = fmt::format("--resume_from_checkpoint {}", found.path.string());
  }
  if (text.empty()) return "There is no other one here: leave --resume_from_checkpoint out to start from the beginning.";
  return fmt::format("Copy the file from a backup, or resume from another one: {}.", text);
}

}  // namespace

std::string damage_of(const std::filesystem::path& checkpoint, int threads, comm::Communicator& comm) {
  std::string mine;
  try {
    ThreadTeam team(threads);
    for (const std::string& problem :
         checkpoint::problems_of(checkpoint, checkpoint::Verify::Content, &team, {comm.rank(), comm.size()})) {
      mine += "\n  " + problem;
    }
  } catch (const Error& problem) {
    mine = fmt::format("\n  {}", problem.what());
  }
  std::string all;
  for (const std::string& text : comm.all_gather_text(mine, "damage of a checkpoint")) {
    if (all.find(text) == all.npos) all += text;
  }
  return all;
}

void require_whole(const std::filesystem::path& checkpoint, const std::filesystem::path& output, int threads,
                   comm::Communicator& comm) {
  const std::string damage = damage_of(checkpoint, threads, comm);
  if (damage.empty()) return;
  throw Error::data("{} was damaged after it was written, so the run would go on to other bits:{}\n{}", checkpoint.string(),
                    damage, other_checkpoints(checkpoint, output));
}

std::filesystem::path checkpoint_of_run(int64_t update, const std::vector<std::filesystem::path>& folders,
                                        const std::string& run_json) {
  const std::string id = run_id(nlohmann::json::parse(run_json, nullptr, false));
  for (const std::filesystem::path& folder : folders) {
    std::filesystem::path found = folder / checkpoint::checkpoint_name(update);
    std::error_code ignored;
    if (!std::filesystem::exists(found / checkpoint::kManifestFile, ignored)) continue;
    const std::string other = run_id(read_run(found));
    if (id.empty() || other.empty() || id == other) return found;
  }
  return {};
}

void mark_ended(const std::filesystem::path& output, const std::string& run_json, int64_t update) {
  auto json = nlohmann::ordered_json::parse(run_json);
  json["ended"] = {{"update", update}};
  write_file_atomically(output / "run.json", json.dump(2) + "\n");
}

bool has_ended(const std::filesystem::path& output, const std::string& run_json, int64_t update) {
  const nlohmann::json before = read_run(output);
  const std::string id = run_id(before);
  if (id.empty() || id != run_id(nlohmann::json::parse(run_json, nullptr, false))) return false;
  if (!before.contains("ended") || before["ended"] != nlohmann::json{{"update", update}}) return false;
  std::error_code ignored;
  if (!std::filesystem::exists(output / "config.json", ignored)) return false;
  const checkpoint::RunComparison comparison = checkpoint::compare_runs(before.dump(), run_json, {});
  return std::none_of(comparison.changed.begin(), comparison.changed.end(), decides_the_end);
}

}  // namespace lockstep::recipes
