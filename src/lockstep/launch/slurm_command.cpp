#include "lockstep/launch/slurm_command.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/launch/slurm_script.h"
#include "lockstep/options/environment.h"
#include "lockstep/options/help.h"
#include "lockstep/options/resolve.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

namespace lockstep::launch {
namespace {

constexpr const char* kSlurmIntroduction = R"(lockstep slurm [OPTIONS] -- COMMAND ...

Writes a batch script that runs `lockstep COMMAND ...` once on each node of a SLURM job. Nodes, ranks, endpoint and run
id come from SLURM when it runs.

  lockstep slurm --nodes 2 --gpus_per_node 8 --time 4:00:00 -- sft --config run.yaml        print the script
  lockstep slurm --nodes 2 --output_script job.sh -- sft --config run.yaml                  write it
  lockstep slurm --nodes 2 --cpus_per_task 64 --submit -- run --nproc_per_node 8 ./train    submit it
)";

struct Parsed {
  SlurmScriptOptions options;
  std::vector<std::string> words;
  bool dry_run = false;
  bool help = false;
};

/// Options of sbatch start with dashes, which no other value does, and these flags may be repeated: they are read
/// before the others.
std::vector<std::string> take_repeated(std::vector<std::string>& args, const std::string& name) {
  std::vector<std::string> values;
  std::vector<std::string> rest;
  for (size_t i = 0; i < args.size(); ++i) {
    const size_t equals = args[i].find('=');
    const bool is_it = args[i].starts_with("--") && options::canonical_key(args[i].substr(2, equals - 2)) == name;
    if (!is_it) {
      rest.push_back(args[i]);
    } else if (equals != std::string::npos) {
      values.push_back(args[i].substr(equals + 1));
    } else if (i + 1 < args.size()) {
      values.push_back(args[++i]);
    } else {
      throw Error::usage("--{} needs a value.", name);
    }
  }
  args = std::move(rest);
  return values;
}

Parsed parse(const std::vector<std::string>& args) {
  Parsed parsed;
  const auto separator = std::find(args.begin(), args.end(), "--");
  std::vector<std::string> flags(args.begin(), separator);
  if (separator != args.end()) parsed.words.assign(separator + 1, args.end());
  auto sbatch_arg = take_repeated(flags, "sbatch_arg");
  auto srun_arg = take_repeated(flags, "srun_arg");
  auto setup = take_repeated(flags, "setup");
  const options::Fields fields = options::collect(parsed.options);
  const options::Resolved resolved = options::resolve(flags, fields);
  if (resolved.help != options::Help::None) {
    const auto page = options::Environment::of_this_process().page;
    fmt::print("{}", options::help_text(fields, kSlurmIntroduction, resolved.help, page));
    parsed.help = true;
    return parsed;
  }
  resolved.problems.throw_if_any();
  parsed.dry_run = resolved.dry_run;
  parsed.options.sbatch_arg = std::move(sbatch_arg);
  parsed.options.srun_arg = std::move(srun_arg);
  parsed.options.setup = std::move(setup);
  return parsed;
}

/// What a reader of the script would otherwise find out on the cluster.
void check_words(const std::vector<std::string>& words) {
  if (words.empty()) {
    throw Error::usage("lockstep slurm: after -- comes what each node runs, as in\n"
                       "  lockstep slurm --nodes 2 -- sft --config run.yaml");
  }
  const std::string& command = words.front();
  if (command.find('/') != std::string::npos || command.ends_with(".py")) {
    throw Error::usage("lockstep slurm -- {}: after -- comes a command of lockstep. For a program of your own: -- run "
                       "{}",
                       command, shell_line(words));
  }
  if (command.starts_with('-') || command == "slurm" || command == "lockstep") {
    throw Error::usage("lockstep slurm -- {}: after -- comes a command of lockstep, such as sft or run.", command);
  }
}

/// `script` on standard input of sbatch; its standard output comes back, the rest is the terminal's.
struct SbatchEnd {
  int status = 0;
  std::string out;
};

UniqueFd memory_file(std::string_view content) {
  UniqueFd fd(::memfd_create("lockstep-batch-script", MFD_CLOEXEC));
  size_t written = 0;
  while (fd.get() >= 0 && written < content.size()) {
    const ssize_t count = ::pwrite(fd.get(), content.data() + written, content.size() - written,
                                   static_cast<off_t>(written));
    if (count <= 0) break;
    written += static_cast<size_t>(count);
  }
  if (fd.get() < 0 || written < content.size()) {
    throw Error::environment("the batch script cannot be handed to sbatch: {}.", std::strerror(errno));
  }
  return fd;
}

SbatchEnd run_sbatch(const std::string& script) {
  const UniqueFd in = memory_file(script);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error::environment("pipe: {}.", std::strerror(errno));
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 1);
  char name[] = "sbatch";
  char parsable[] = "--parsable";
  char* argv[] = {name, parsable, nullptr};
  pid_t pid = 0;
  const int problem = ::posix_spawnp(&pid, name, &actions, nullptr, argv, environ);
  posix_spawn_file_actions_destroy(&actions);
  write_end.reset();
  if (problem != 0) {
    throw Error::environment("sbatch cannot be run: {}. --submit needs SLURM's programs in PATH: type it on a login "
                             "node, or write the script with --output_script FILE and submit that there.",
                             std::strerror(problem));
  }
  SbatchEnd end;
  char buffer[4096];
  ssize_t count = 0;
  while ((count = ::read(read_end.get(), buffer, sizeof buffer)) > 0 || (count < 0 && errno == EINTR)) {
    if (count > 0) end.out.append(buffer, static_cast<size_t>(count));
  }
  while (::waitpid(pid, &end.status, 0) < 0 && errno == EINTR) {
  }
  return end;
}

int submit(const std::string& script) {
  const SbatchEnd end = run_sbatch(script);
  if (WIFSIGNALED(end.status)) throw Error::environment("sbatch was killed by signal {}.", WTERMSIG(end.status));
  if (WEXITSTATUS(end.status) != 0) {
    fmt::print(stderr, "lockstep: sbatch refused the job; its reason is above.\n");
    return WEXITSTATUS(end.status);
  }
  // "12" or "12;cluster"
  const std::string id = end.out.substr(0, end.out.find_first_of(";\n"));
  fmt::print("{}\n", id);
  fmt::print(stderr, "lockstep: submitted as job {}.\n", id);
  return 0;
}

}  // namespace

int run_slurm_command(const std::vector<std::string>& args) {
  const Parsed parsed = parse(args);
  if (parsed.help) return 0;
  check_words(parsed.words);
  const std::string program = fs::read_symlink("/proc/self/exe").string();
  const std::string script = slurm_script(parsed.options, program, parsed.words);
  if (parsed.dry_run) {
    fmt::print("{}", script);
    return 0;
  }
  if (parsed.options.output_script) {
    const fs::path path = expand_user(*parsed.options.output_script);
    write_file_atomically(path, script);
    std::error_code ignored;
    fs::permissions(path, fs::perms::owner_exec | fs::perms::group_exec, fs::perm_options::add, ignored);
  }
  if (parsed.options.submit) return submit(script);
  if (!parsed.options.output_script) fmt::print("{}", script);
  return 0;
}

}  // namespace lockstep::launch
