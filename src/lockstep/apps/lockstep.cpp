// The front program: from the command line to a group of workers, and their end.
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/launch/group.h"
#include "lockstep/options/environment.h"
#include "lockstep/recipes/sft_cli.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using namespace lockstep;

constexpr const char* kHelp = R"(lockstep trains transformer models; the result does not depend on the layout.

  lockstep sft        fine-tune a model on chats or texts      (the role of: trl sft)
  lockstep options    print the documentation of all options   (--markdown)

  lockstep sft --help     what it takes, with examples
  lockstep --version

You type `trl sft ARGS` today: type `lockstep sft ARGS`. Example:

  lockstep sft --model_name_or_path SmolLM2-135M-Instruct --dataset_name chats.jsonl --output_dir out --nproc_per_node 2
)";

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

constexpr std::string_view kRunFolderPrefix = "lockstep-run";

/// What a worker that was killed while saving left in and beside the output folder.
void remove_unfinished_output(const fs::path& output, const std::vector<launch::WorkerEnd>& ends) {
  std::vector<pid_t> pids;
  for (const launch::WorkerEnd& end : ends) pids.push_back(end.pid);
  std::error_code problem;
  const fs::path folder = fs::weakly_canonical(fs::absolute(output / "").parent_path(), problem);
  if (problem) return;
  remove_unfinished(folder, pids);
  remove_unfinished(folder.parent_path(), pids);
}

int run_sft(const std::vector<std::string>& args) {
  const double started = unix_seconds();
  const options::Environment environment = options::Environment::of_this_process();
  const recipes::ParsedSft parsed = recipes::parse_sft(args, environment);
  if (parsed.help) {
    fmt::print("{}", *parsed.help);
    return 0;
  }
  // As trl does, before anything else looks at the environment; workers inherit it.
  for (const auto& [name, value] : parsed.environment) setenv(name.c_str(), value.c_str(), 1);
  for (const std::string& note : parsed.notes) fmt::print(stderr, "note: {}\n", note);
  if (parsed.dry_run) fmt::print("{}", recipes::resolved_sft_text(parsed, environment.page));
  std::fflush(stdout);
  require_local_inputs(parsed.options);

  TempFolder::remove_abandoned(kRunFolderPrefix);
  const TempFolder run_folder(kRunFolderPrefix);
  write_file_atomically(run_folder.path() / "run.json", recipes::dump_sft(parsed));

  launch::GroupSpec group;
  group.command = worker_program();
  group.args = {"sft", "--run_file", (run_folder.path() / "run.json").string()};
  if (parsed.dry_run) group.args.push_back("--dry_run");
  group.num_workers =
      parsed.dry_run ? 1 : static_cast<int>(launch::num_workers(parsed.options.launch, available_cores()));
  for (const auto& [name, value] : parsed.environment) group.env.emplace_back(name, value);
  group.env.emplace_back("LOCKSTEP_STARTED", double_text(started));
  group.run_folder = run_folder.path();
  group.timeouts.start = Milliseconds(static_cast<int64_t>(1e3 * parsed.options.launch.start_timeout));
  if (parsed.options.launch.threads_per_process) {
    group.threads_per_process = static_cast<int>(*parsed.options.launch.threads_per_process);
  } else if (parsed.dry_run) {
    // The one process of a dry run reports with the threads that each of the real ones would have.
    group.threads_per_process = launch::threads_per_worker(
        std::nullopt, available_cores(), static_cast<int>(launch::num_workers(parsed.options.launch, available_cores())));
  }
  const launch::GroupResult result = launch::run_group(group, {});
  if (result.exit_code != 0) {
    remove_unfinished_output(parsed.options.train.output_dir.value_or("trainer_output"), result.ends);
  } else if (!result.done_text.empty()) {
    fmt::print("{}\n", result.done_text);
  }
  return result.exit_code;
}

int run(const std::vector<std::string>& words) {
  const std::string command = words.empty() ? "help" : words[0];
  const std::vector<std::string> args(words.begin() + (words.empty() ? 0 : 1), words.end());
  if (command == "sft") return run_sft(args);
  if (command == "options") {
    if (args != std::vector<std::string>{"--markdown"}) throw Error::usage("lockstep options: give --markdown.");
    fmt::print("{}", recipes::options_markdown());
    return 0;
  }
  if (command == "--version" || command == "version") {
    fmt::print("lockstep {}\n", LOCKSTEP_VERSION);
    return 0;
  }
  if (command == "help" || command == "--help" || command == "-h") {
    fmt::print("{}", kHelp);
    return 0;
  }
  throw Error::usage("lockstep {}: there is no such command. Commands: sft, options. See lockstep --help.", command);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    log::init(-1, log::Level::Info);
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const Error& error) {
    fmt::print(stderr, "lockstep: error: {}\n", error.what());
    return error.exit_code();
  } catch (const std::exception& problem) {
    fmt::print(stderr, "lockstep: internal error: {}\n", problem.what());
    return exit_code(ErrorKind::Internal);
  }
}
