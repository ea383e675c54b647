// lockstep sft: from its command line to a group of workers on this node, and perhaps on others.
#include "lockstep/apps/commands.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/launch/job_plan.h"
#include "lockstep/launch/own_run.h"
#include "lockstep/options/environment.h"
#include "lockstep/recipes/sft_cli.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace lockstep::apps {
namespace {

std::string double_text(double value) { return fmt::format("{:.6f}", value); }

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The worker lies beside this program.
fs::path worker_program() {
  const fs::path here = fs::read_symlink("/proc/self/exe").parent_path() / "lockstep-worker";
  if (!fs::exists(here)) {
    throw Error::environment("{} is missing. It is built and installed beside lockstep: run scripts/build.",
                             here.string());
  }
  return here;
}

/// Cheap checks that need no worker: a wrong path is told in milliseconds.
void require_local_inputs(const recipes::SftOptions& options) {
  const fs::path model = *options.model.model_name_or_path;
  if (!fs::exists(model)) {
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
  const fs::path data = *options.data.dataset_name;
  if (!fs::exists(data)) {
    throw Error::data("--dataset_name = {}: there is no such file or folder. Names of the Hugging Face Hub are not "
                      "fetched yet: download the data and give a .jsonl file or the folder.",
                      data.string());
  }
}

constexpr std::string_view kRunFolderPrefix = "lockstep-run-tmp.";

/// What a worker that was killed while saving left in and beside the output folder.
void remove_unfinished_output(const fs::path& output, const std::vector<pid_t>& pids) {
  std::error_code problem;
  const fs::path folder = fs::weakly_canonical(fs::absolute(output / "").parent_path(), problem);
  if (problem) return;
  remove_unfinished(folder, pids);
  remove_unfinished(folder.parent_path(), pids, folder.filename().string() + ".tmp-");
}

/// The workers of this node. A dry run is one process, which reports with the threads that each of the real ones would
/// have.
launch::GroupSpec make_group(const recipes::ParsedSft& parsed, const launch::JobPlan& plan,
                             const fs::path& run_folder) {
  const launch::LaunchOptions& options = parsed.options.launch;
  const auto num_workers = static_cast<int>(launch::num_workers(options, available_cores()));
  launch::GroupSpec group;
  group.command = worker_program();
  group.args = {"sft", "--run_file", (run_folder / "run.json").string()};
  if (parsed.dry_run) {
    group.args.insert(group.args.end(), {"--dry_run", std::to_string(num_workers * plan.spec.max_nodes)});
  }
  group.num_workers = parsed.dry_run ? 1 : num_workers;
  group.env.assign(parsed.environment.begin(), parsed.environment.end());
  group.run_folder = run_folder;
  group.timeouts.start = Milliseconds(static_cast<int64_t>(1e3 * options.start_timeout));
  // SLURM kills after KillWait; the report and the clean-up must come before.
  group.timeouts.interrupt_grace = std::min(group.timeouts.interrupt_grace, plan.spec.shutdown_timeout);
  if (options.threads_per_process) {
    group.threads_per_process = static_cast<int>(*options.threads_per_process);
  } else if (parsed.dry_run) {
    group.threads_per_process = launch::threads_per_worker(std::nullopt, available_cores(), num_workers);
  }
  return group;
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) fmt::print(stderr, "note: {}\n", note);
}

launch::JobPlan make_plan(const recipes::ParsedSft& parsed, const std::vector<std::string>& argv) {
  const launch::Environment environment = launch::current_environment();
  const int64_t num_workers = launch::num_workers(parsed.options.launch, available_cores());
  launch::JobPlan plan =
      launch::plan_job(launch::as_run(parsed.options.launch, parsed.origins, num_workers, "lockstep sft"), environment,
                       launch::this_machine(environment), argv);
  print_notes(plan.notes);
  for (const std::string& warning : plan.warnings) fmt::print(stderr, "warning: {}\n", warning);
  return plan;
}

int run_job(launch::JobPlan& plan, launch::OwnRun& job) {
  if (plan.spec.max_nodes == 1) return launch::run_rounds(job, plan.spec.num_workers, plan.spec.max_restarts);
  return launch::run_plan_on_nodes(plan, job);
}

}  // namespace

int run_sft(const Invocation& invocation) {
  const double started = unix_seconds();
  options::Environment environment = options::Environment::of_this_process();
  const auto step = launch::read_slurm(launch::current_environment()).step;
  if (step) environment.nodes = step->num_nodes;
  // What is the same on all nodes is said by one of them.
  const bool speaks = !step || step->node_id == 0;
  const recipes::ParsedSft parsed = recipes::parse_sft(invocation.args, environment);
  if (parsed.help) {
    fmt::print("{}", *parsed.help);
    return 0;
  }
  // As trl does, before anything else looks at the environment; workers inherit it.
  for (const auto& [name, value] : parsed.environment) setenv(name.c_str(), value.c_str(), 1);
  if (speaks) print_notes(parsed.notes);
  if (parsed.dry_run && speaks) fmt::print("{}", recipes::resolved_sft_text(parsed, environment.page));
  std::fflush(stdout);
  require_local_inputs(parsed.options);
  launch::JobPlan plan = make_plan(parsed, invocation.argv);
  if (parsed.dry_run && !speaks) return 0;

  TempFolder::remove_abandoned(kRunFolderPrefix);
  const TempFolder run_folder(kRunFolderPrefix);
  write_file_atomically(run_folder.path() / "run.json", recipes::dump_sft(parsed));
  launch::GroupSpec group = make_group(parsed, plan, run_folder.path());
  group.env.emplace_back("LOCKSTEP_STARTED", double_text(started));
  launch::OwnRun job(group);
  const int code = parsed.dry_run ? launch::run_rounds(job, 1, 0) : run_job(plan, job);
  if (code != 0) {
    remove_unfinished_output(parsed.options.train.output_dir.value_or("trainer_output"), job.pids());
  } else if (!job.done_text().empty()) {
    fmt::print("{}\n", job.done_text());
  }
  return code;
}

}  // namespace lockstep::apps
