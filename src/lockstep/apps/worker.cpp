// The program that computes; started by `lockstep`, one per process of the group.
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/limits.h"
#include "lockstep/launch/worker_link.h"
#include "lockstep/recipes/classify.h"
#include "lockstep/recipes/generate.h"
#include "lockstep/recipes/generate_cli.h"
#include "lockstep/recipes/replay_cli.h"
#include "lockstep/recipes/sft.h"

#include <c10/util/Exception.h>
#include <c10/util/Logging.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <jemalloc/jemalloc.h>
#include <new>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace lockstep;

struct WorkerArguments {
  std::string command;
  fs::path run_file;
  std::optional<int64_t> dry_run = {};  ///< for so many processes
  std::optional<recipes::ReplayRequest> replay = {};
};

WorkerArguments read_arguments(const std::vector<std::string>& words) {
  WorkerArguments arguments;
  const bool known = words.size() >= 3 && (words[0] == "sft" || words[0] == "classify") && words[1] == "--run_file";
  if (!known) throw Error::usage("lockstep-worker is started by lockstep. Type `lockstep sft --help`.");
  arguments.command = words[0];
  arguments.run_file = words[2];
  const auto dry_run = std::find(words.begin() + 3, words.end(), "--dry_run");
  if (words.end() - dry_run > 1) arguments.dry_run = std::stoll(*(dry_run + 1));
  arguments.replay = recipes::replay_request(words);
  return arguments;
}

void work(const std::vector<std::string>& words, launch::WorkerLink& link) {
  const WorkerArguments arguments = read_arguments(words);
  const std::string text = read_file(arguments.run_file);
  const auto start = [&](auto parsed, auto recipe) {
    parsed.dry_run = arguments.dry_run.has_value();
    parsed.dry_run_processes = arguments.dry_run.value_or(1);
    log::init(link.world_rank(), log::level_from_name(parsed.options.train.log_level));
    recipe(parsed, link, arguments.replay);
  };
  if (arguments.command == "classify") {
    start(recipes::load_classify(text, arguments.run_file.string()), recipes::run_classify);
  } else {
    start(recipes::load_sft(text, arguments.run_file.string()), recipes::run_sft);
  }
}

/// Everything that can be thrown, in our words.
Error in_our_words(const std::exception& problem) {
  const launch::Limits limits = launch::current_limits();
  const auto out_of_memory = [&](const std::string& what) {
    return launch::as_error(Error::environment("out of memory{}. Use --gradient_checkpointing true, a smaller "
                                               "--grain_tokens, or more processes (masters and moments are sharded over "
                                               "them).", what), limits);
  };
  if (const auto* of_torch = dynamic_cast<const c10::Error*>(&problem)) {
    const std::string text = of_torch->what_without_backtrace();
    return text.find("alloc") != std::string::npos ? out_of_memory(": " + text) : Error::internal("libtorch: {}", text);
  }
  if (dynamic_cast<const std::bad_alloc*>(&problem) != nullptr) return out_of_memory("");
  return launch::as_error(problem, limits);
}

std::optional<Error> run(const std::vector<std::string>& words, launch::WorkerLink& link) {
  try {
    work(words, link);
    return std::nullopt;
  } catch (const std::exception& problem) {
    return in_our_words(problem);
  }
}

/// jemalloc serves this program in place of glibc's malloc. Activations of one grain are freed just before those of the
/// next are asked for, never of quite the same size: glibc then either returns them to the kernel and faults them in
/// again, or breaks its heap into ever more pieces (docs/perf). Throws when something else has taken its place.
void require_jemalloc() {
  const char* version = nullptr;
  size_t size = sizeof version;
  if (mallctl("version", &version, &size, nullptr, 0) != 0) {
    throw Error::environment("jemalloc is not in use. Start lockstep without LD_PRELOAD of another malloc.");
  }
}

/// lockstep generate: no group, no link to the front program, whose place it has taken.
int run_generate(const std::vector<std::string>& words) {
  try {
    if (words.size() != 3 || words[1] != "--options") throw Error::usage("lockstep-worker generate is started by lockstep generate.");
    log::init(-1, log::Level::Info);
    recipes::run_generate(recipes::load_generate(words[2]));
    return 0;
  } catch (const std::exception& problem) {
    const Error error = in_our_words(problem);
    std::fflush(stdout);
    fmt::print(stderr, "lockstep: {}: {}\n", error.kind() == ErrorKind::Internal ? "internal error" : "error", error.what());
    return error.exit_code();
  }
}

int run_program(const std::vector<std::string>& words) {
  try {
    require_jemalloc();
    // Python's torch does it by itself; without it TORCH_CPP_LOG_LEVEL is not heeded.
    c10::initLogging();
    if (!words.empty() && words[0] == "generate") return run_generate(words);
    launch::WorkerLink link = launch::WorkerLink::from_environment();
    const std::optional<Error> error = run(words, link);
    if (!error) return 0;
    link.fail(*error);
    return error->exit_code();
  } catch (const std::exception& problem) {
    const Error error = in_our_words(problem);
    fmt::print(stderr, "lockstep-worker: error: {}\n", error.what());
    return error.exit_code();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int code = run_program(std::vector<std::string>(argv + 1, argv + argc));
  // What is ours has ended and is written; libtorch would go on to take its registries apart, entry by entry.
  std::fflush(nullptr);
  std::_Exit(code);
}
