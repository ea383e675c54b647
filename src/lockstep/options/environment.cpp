#include "lockstep/options/environment.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/thread_team.h"

namespace lockstep::options {
namespace {

/// Wider lines are hard to read, narrower ones leave no room beside the flags.
constexpr size_t kNarrowest = 72;
constexpr size_t kWidest = 120;

size_t columns() {
  if (const char* given = std::getenv("COLUMNS"); given != nullptr) {
    const long asked = std::strtol(given, nullptr, 10);
    if (asked > 0) return static_cast<size_t>(asked);
  }
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 100;
}

}  // namespace

Environment Environment::of_this_process() {
  Environment environment;
  environment.page.width = std::clamp(columns(), kNarrowest, kWidest);
  environment.page.colour = isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  environment.cores = available_cores();
  return environment;
}

}  // namespace lockstep::options
