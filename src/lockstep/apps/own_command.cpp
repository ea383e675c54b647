#include "lockstep/apps/own_command.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/launch/job_plan.h"
#include "lockstep/launch/own_run.h"
#include "lockstep/options/environment.h"
#include "lockstep/recipes/cli_checks.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::apps {
namespace {

std::string double_text(double value) { return fmt::format("{:.6f}", value); }

}  // namespace

fs::path worker_program() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path() / "lockstep-worker";
  if (!fs::exists(here)) {
    throw Error::environment("{} is missing. It is built and installed beside lockstep: run scripts/build.",
                             here.string());
  }
  return here;
}

namespace {

constexpr std::string_view kRunFolderPrefix = "lockstep-run-tmp.";

/// What a worker that was killed while saving left in and beside the output folder.
void remove_unfinished_output(const fs::path& output, const std::vector<pid_t>& pids) {
  if (output.empty()) return;
  std::error_code problem;
  const fs::path folder = fs::weakly_canonical(fs::absolute(output / "").parent_path(), problem);
  if (problem) return;
  remove_unfinished(folder, pids);
  remove_unfinished(folder.parent_path(), pids, folder.filename().string() + ".tmp-");
}

/// The workers of this node. A dry run is one process, which reports with the threads that each of the real ones would
/// have.
launch::GroupSpec make_group(const OwnCommand& command, const launch::JobPlan& plan, const fs::path& run_folder) {
  const launch::LaunchOptions& options = *command.launch;
  const auto num_workers = static_cast<int>(launch::num_workers(options, available_cores()));
  launch::GroupSpec group;
  group.command = worker_program();
  group.args = {command.name, "--run_file", (run_folder / "run.json").string()};
  group.args.insert(group.args.end(), command.worker_words.begin(), command.worker_words.end());
  if (command.dry_run) {
    group.args.insert(group.args.end(), {"--dry_run", std::to_string(num_workers * plan.spec.max_nodes)});
  }
  group.num_workers = command.dry_run ? 1 : num_workers;
  group.env.assign(command.environment->begin(), command.environment->end());
  group.run_folder = run_folder;
  group.timeouts.start = Milliseconds(static_cast<int64_t>(1e3 * options.start_timeout));
  // SLURM kills after KillWait; the report and the clean-up must come before.
  group.timeouts.interrupt_grace = std::min(group.timeouts.interrupt_grace, plan.spec.shutdown_timeout);
  if (options.threads_per_process) {
    group.threads_per_process = static_cast<int>(*options.threads_per_process);
  } else if (command.dry_run) {
    group.threads_per_process = launch::threads_per_worker(std::nullopt, available_cores(), num_workers);
  }
  return group;
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", note);
}

launch::JobPlan make_plan(const OwnCommand& command, const std::vector<std::string>& argv) {
  const launch::Environment environment = launch::current_environment();
  const int64_t num_workers = launch::num_workers(*command.launch, available_cores());
  launch::JobPlan plan =
      launch::plan_job(launch::as_run(*command.launch, *command.origins, num_workers, "lockstep " + command.name), environment,
                       launch::this_machine(environment), argv);
  print_notes(plan.notes);
  for (const std::string& warning : plan.warnings) fmt::print(stderr, "warning: {}\n", warning);
  return plan;
}

int run_job(launch::JobPlan& plan, launch::OwnRun& job) {
  if (plan.spec.max_nodes == 1) return launch::run_rounds(job, plan.spec.num_workers, plan.spec.max_restarts);
  return launch::run_plan_on_nodes(plan, job);
}

int run_planned(const OwnCommand& command, launch::JobPlan& plan, double started) {
  TempFolder::remove_abandoned(kRunFolderPrefix);
  const TempFolder run_folder(kRunFolderPrefix);
  write_file_atomically(run_folder.path() / "run.json", command.run_file);
  launch::GroupSpec group = make_group(command, plan, run_folder.path());
  group.env.emplace_back("LOCKSTEP_STARTED", double_text(started));
  launch::OwnRun job(group);
  const int code = command.dry_run ? launch::run_rounds(job, 1, 0) : run_job(plan, job);
  if (code != 0) {
    remove_unfinished_output(command.output_dir, job.pids());
  } else {
    // The report of data and model is on standard error by now.
    if (command.dry_run) fmt::print("{}", command.resolved);
    if (!job.done_text().empty()) fmt::print("{}\n", job.done_text());
  }
  return code;
}

}  // namespace

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

namespace {

/// Of a variable that holds a whole number; nothing for others.
std::optional<int64_t> number_in(const launch::Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  if (found == environment.end()) return std::nullopt;
  const std::string& text = found->second;
  int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// One of several processes that torchrun or `lockstep run` started would be a job of its own beside the others, all in one
/// output folder. Under srun the step tells the nodes of each other, whatever else the script exports.
void require_no_outer_launcher(const std::string& command, const launch::Environment& environment, bool in_step) {
  const auto size = number_in(environment, "WORLD_SIZE"), rank = number_in(environment, "RANK");
  if (!size || !rank || *size < 2) return;
  if (in_step && !environment.contains("TORCHELASTIC_RUN_ID")) return;
  throw Error::usage("lockstep {0} is started as one of {1} processes (RANK = {2}, WORLD_SIZE = {1} in the environment), and each "
                     "would be a whole job. It starts its own processes: drop the outer `lockstep run` or torchrun and give "
                     "lockstep {0} --nproc_per_node (and --nnodes). For a job of its own inside a worker unset RANK and WORLD_SIZE.",
                     command, *size, *rank);
}

}  // namespace

options::Environment environment_of_step() {
  options::Environment environment = options::Environment::of_this_process();
  const auto step = launch::read_slurm(launch::current_environment()).step;
  if (step) environment.nodes = step->num_nodes;
  return environment;
}

void require_model_folder(const std::string& folder) {
  const fs::path model = folder;
  std::error_code problem;
  const bool exists = fs::exists(model, problem);
  if (!exists && problem) {
    throw Error::data("--model_name_or_path = {}: cannot be reached: {}.", folder, problem.message());
  }
  if (!exists) {
    throw Error::data("--model_name_or_path = {}: there is no such folder. Names of the Hugging Face Hub are not "
                      "fetched yet: download the model and give its folder.",
                      model.string());
  }
  if (!fs::is_directory(model)) {
    throw Error::data("--model_name_or_path = {}: is not a folder. Give the folder that holds config.json.",
                      model.string());
  }
  if (!fs::exists(model / "config.json")) {
    throw Error::data("--model_name_or_path = {}: there is no config.json in it. Give the folder of a Hugging Face "
                      "model.",
                      model.string());
  }
}

void require_data(const std::string& flag, const std::string& path) {
  std::error_code problem;
  if (fs::exists(path, problem)) return;
  if (problem) throw Error::data("--{} = {}: cannot be reached: {}.", flag, path, problem.message());
  throw Error::data("--{} = {}: there is no such file or folder. Names of the Hugging Face Hub are not fetched yet: "
                    "download the data and give a .jsonl file or the folder.",
                    flag, path);
}

void require_readable_words(const Invocation& invocation) {
  for (const std::string& word : invocation.args) {
    try {
      static_cast<void>(nlohmann::json(word).dump());
    } catch (const nlohmann::json::exception&) {
      throw Error::usage("a word of the command line is not UTF-8 text: '{}'. Rename the file or folder.", word);
    }
  }
  std::error_code problem;
  static_cast<void>(fs::current_path(problem));
  if (problem) {
    throw Error::environment("the current folder cannot be found ({}). Was it removed? Go to another one.",
                             problem.message());
  }
}

void require_another_output(const std::string& model, const std::string& output, bool overwrite, bool saves) {
  const recipes::Replaced replaced = overwrite ? recipes::Replaced::Nothing : recipes::replaced_by_run(model, output, saves);
  if (replaced == recipes::Replaced::Nothing) return;
  if (replaced == recipes::Replaced::Checkpoint) {
    throw Error::usage("--output_dir = {}: holds the model to start from, {}, which a checkpoint of this run may replace. Name "
                       "another folder, or give --overwrite_output_dir.", output, model);
  }
  throw Error::usage("--output_dir = {}: is the model's own folder, which the trained model would replace. Name another "
                     "folder, or give --overwrite_output_dir.",
                     output);
}

int run_own_command(const OwnCommand& command, const Invocation& invocation, double started) {
  const launch::Environment variables = launch::current_environment();
  const auto step = launch::read_slurm(variables).step;
  require_no_outer_launcher(command.name, variables, step.has_value());
  // What is the same on all nodes is said by one of them.
  const bool speaks = !step || step->node_id == 0;
  // As trl does, before anything else looks at the environment; workers inherit it.
  for (const auto& [name, value] : *command.environment) setenv(name.c_str(), value.c_str(), 1);
  if (speaks) print_notes(command.notes);
  command.require_local_inputs();
  launch::JobPlan plan = make_plan(command, invocation.argv);
  if (command.dry_run && !speaks) return 0;
  const auto work = [&] { return run_planned(command, plan, started); };
  return command.dry_run ? work() : launch::run_or_tell_the_others(plan, work);
}

}  // namespace lockstep::apps
