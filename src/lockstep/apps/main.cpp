// The front program: from the command line to a group of workers, and their end.
#include "lockstep/apps/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/limits.h"

#include <fmt/format.h>

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

using namespace lockstep;

/// Under the name torchrun (a symbolic link) this program is `lockstep run`; under trl it is itself.
std::vector<std::string> command_words(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (argc > 0 && std::filesystem::path(argv[0]).filename() == "torchrun") words.insert(words.begin(), "run");
  return words;
}

/// A descriptor 0, 1 or 2 that is closed would be given to the next file or socket that is opened, and then be read from
/// or written to as if it were the user's.
void open_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    // The lowest free number is taken, which is this one: those below are open by now.
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) != fd) std::abort();
  }
}

}  // namespace

int main(int argc, char** argv) {
  open_standard_descriptors();
  try {
    log::init(-1, log::Level::Info);
    const std::vector<std::string> words = command_words(argc, argv);
    if (!words.empty() && (words[0] == "--version" || words[0] == "version")) {
      fmt::print("lockstep {}\n", LOCKSTEP_VERSION);
      return 0;
    }
    return apps::run_command_line(words, std::vector<std::string>(argv, argv + argc));
  } catch (const std::exception& problem) {
    const Error error = launch::as_error(problem, launch::current_limits());
    const char* kind = error.kind() == ErrorKind::Internal ? "internal error" : "error";
    fmt::print(stderr, "lockstep: {}: {}\n", kind, error.what());
    return error.exit_code();
  }
}
