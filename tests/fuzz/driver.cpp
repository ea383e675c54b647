// Looks for inputs that break a parser (targets.h).
//
// usage: fuzz_driver TARGET [--seconds N] [--seed N] [--corpus PATH] [--crashes FOLDER] [--distill FOLDER]
//   --seconds N       of processor time (default 10; 0: only what is given)
//   --seed N          of the random numbers (default 1): with the same corpus and number of executions, the same search
//   --corpus PATH     a folder, or one input, to begin with
//   --crashes FOLDER  where the input goes that broke it (default: .)
//   --distill FOLDER  where few inputs go that together reach what all have reached
//
// One process searches, another watches it: however the first ends, its last input is kept. Prints a line of figures.
// Exit code 0: nothing was found; 1: something was; 2: usage.
#include "fuzz/corpus.h"
#include "fuzz/search.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>
#include <vector>

extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() {
  return "max_allocation_size_mb=256:quarantine_size_mb=16:allocator_may_return_null=0:handle_abort=1";
}
extern "C" __attribute__((visibility("default"))) const char* __ubsan_default_options() { return "print_stacktrace=1"; }

namespace lockstep::fuzz {
namespace {

constexpr int kHang_s = 10;  ///< of processor time, for one input
constexpr long kMostMemory_KiB = 2L << 20;
constexpr int kFound = 1;
constexpr size_t kDistilledBytes = 4000;

struct Arguments {
  std::string target;
  std::map<std::string, std::string> options;

  std::optional<std::string> get(const std::string& name) const {
    const auto found = options.find(name);
    return found == options.end() ? std::nullopt : std::optional(found->second);
  }
  uint64_t number(const std::string& name, uint64_t otherwise) const {
    const std::string text = get(name).value_or(std::to_string(otherwise));
    uint64_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size()) {
      throw Error::usage("{} {}: must be a whole number.", name, text);
    }
    return value;
  }
};

Arguments parse(int argc, char** argv) {
  if (argc < 2) throw Error::usage("give a target, such as host_list.");
  Arguments arguments{.target = argv[1], .options = {}};
  for (int i = 2; i < argc; i += 2) {
    const std::string name = argv[i];
    if (name != "--seconds" && name != "--seed" && name != "--corpus" && name != "--crashes" && name != "--distill") {
      throw Error::usage("{}: there is no such option.", name);
    }
    if (i + 1 == argc) throw Error::usage("{} needs a value.", name);
    arguments.options[name] = argv[i + 1];
  }
  return arguments;
}

const Progress* watched = nullptr;

/// Async-signal-safe.
[[noreturn]] void give_up(std::string_view why) {
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, why.data(), why.size());
  std::abort();
}

void on_tick(int /*signal*/) {
  static uint64_t last = 0;
  static int ticks = 0;
  const uint64_t executions = watched->executions;
  ticks = executions == last ? ticks + 1 : 0;
  last = executions;
  if (ticks >= kHang_s) give_up("the input takes more than 10 s\n");
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  if (usage.ru_maxrss > kMostMemory_KiB) give_up("more than 2 GiB of memory are used\n");
}

void watch(const Progress& progress) {
  watched = &progress;
  struct sigaction action = {};
  action.sa_handler = on_tick;
  action.sa_flags = SA_RESTART;
  sigaction(SIGPROF, &action, nullptr);
  const itimerval every_second = {.it_interval = {.tv_sec = 1, .tv_usec = 0}, .it_value = {.tv_sec = 1, .tv_usec = 0}};
  setitimer(ITIMER_PROF, &every_second, nullptr);
}

struct Plan {
  const Target& target;
  uint64_t seconds;
  uint64_t seed;
  std::vector<std::string> corpus;
  std::optional<std::string> distill_into;
};

int search(const Plan& plan, Progress& progress) {
  try {
    watch(progress);
    Search search(plan.target, plan.seed, progress);
    for (std::string& seed : plan.target.seeds()) search.add(std::move(seed));
    for (const std::string& input : plan.corpus) search.add(input);
    if (plan.seconds > 0) search.run(static_cast<double>(plan.seconds));
    if (!plan.distill_into) return 0;
    fs::create_directories(*plan.distill_into);
    for (const std::string& input : search.distilled(kDistilledBytes)) {
      write_file_atomically(fs::path(*plan.distill_into) / name_of(input), input);
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "an exception came out: {}\n", error.what());
    return kFound;
  } catch (...) {
    fmt::print(stderr, "something came out that is no exception of the standard library\n");
    return kFound;
  }
}

/// Where the input went that broke the target; empty when nothing did.
std::string keep_what_broke(int status, const Target& target, const Progress& progress, const fs::path& folder) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  const std::string input(progress.input.data(), progress.size);
  fs::create_directories(folder);
  const fs::path path = folder / fmt::format("{}-{}", target.name, name_of(input));
  write_file_atomically(path, input);
  return path.string();
}

Plan plan(const Arguments& arguments) {
  Plan plan{.target = target(arguments.target),
            .seconds = arguments.number("--seconds", 10),
            .seed = arguments.number("--seed", 1),
            .corpus = {},
            .distill_into = arguments.get("--distill")};
  const auto path = arguments.get("--corpus");
  if (path) plan.corpus = read_corpus(*path);
  for (const std::string& input : plan.corpus) {
    if (input.size() <= kLargestInput) continue;
    throw Error::usage("{}: an input of {} bytes; at most {} are tried.", *path, input.size(), kLargestInput);
  }
  return plan;
}

int run(const Plan& plan, const fs::path& crashes) {
  void* shared = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw Error::environment("no memory of {} bytes to share.", sizeof(Progress));
  const Progress& progress = *new (shared) Progress;
  const pid_t child = fork();
  if (child < 0) throw Error::environment("cannot start a process.");
  if (child == 0) std::exit(search(plan, *static_cast<Progress*>(shared)));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) throw Error::environment("the searching process was lost.");
  }
  const std::string found = keep_what_broke(status, plan.target, progress, crashes);
  const double seconds = progress.seconds;
  const double rate = seconds > 0 ? static_cast<double>(progress.executions) / seconds : 0;
  fmt::print("{} seconds {:.1f} executions {} per_second {:.0f} edges {} inputs {} found {}\n", plan.target.name, seconds,
             progress.executions.load(), rate, progress.edges.load(), progress.inputs.load(),
             found.empty() ? "nothing" : found);
  return found.empty() ? 0 : kFound;
}

}  // namespace
}  // namespace lockstep::fuzz

int main(int argc, char** argv) {
  try {
    const auto arguments = lockstep::fuzz::parse(argc, argv);
    return lockstep::fuzz::run(lockstep::fuzz::plan(arguments), arguments.get("--crashes").value_or("."));
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "fuzz_driver: error: {}\n", error.what());
    return error.exit_code();
  }
}
