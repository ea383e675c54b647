#include "lockstep/launch/limits.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <new>
#include <system_error>

namespace lockstep::launch {
namespace {

template <class Resource>
std::optional<uint64_t> soft_limit(Resource resource) {
  rlimit limit = {};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  return limit.rlim_cur;
}

bool holds_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view word) { return text.find(word) != text.npos; });
}

std::string now(const std::optional<uint64_t>& limit) { return limit ? fmt::format(", now {}", *limit) : std::string(); }

std::string address_space_advice(const Limits& limits) {
  return fmt::format("{} (ulimit -v); type ulimit -v unlimited.", address_space_words(*limits.address_space_bytes));
}

Error plain_error(const std::exception& problem) {
  if (const auto* error = dynamic_cast<const Error*>(&problem)) return *error;
  if (dynamic_cast<const std::bad_alloc*>(&problem) != nullptr) return Error::environment("out of memory.");
  if (dynamic_cast<const std::filesystem::filesystem_error*>(&problem) != nullptr) {
    return Error::environment("{}. Check the disk and the path.", problem.what());
  }
  const auto* of_system = dynamic_cast<const std::system_error*>(&problem);
  if (of_system != nullptr && of_system->code() == std::errc::resource_unavailable_try_again) {
    return Error::environment("a thread cannot be started: {}.", of_system->code().message());
  }
  if (of_system != nullptr) return Error::environment("{}.", problem.what());
  return Error::internal("{}", problem.what());
}

}  // namespace

Limits current_limits() {
  return {.open_files = soft_limit(RLIMIT_NOFILE), .processes = soft_limit(RLIMIT_NPROC),
          .address_space_bytes = soft_limit(RLIMIT_AS)};
}

std::string address_space_words(uint64_t bytes) { return fmt::format("{} MiB of address space", bytes >> 20); }

std::string serving_problem(const Limits& limits, int num_nodes, int num_workers) {
  // Pipes, signals, timers, listeners, log files; a connection of each node; two streams of each worker here.
  constexpr uint64_t kOwn = 20;
  const uint64_t needed = kOwn + static_cast<uint64_t>(num_nodes) + 2 * static_cast<uint64_t>(num_workers);
  if (!limits.open_files || *limits.open_files >= needed) return {};
  return fmt::format("{} open files are too few for the node that serves the meeting: it needs {} for {} nodes. Raise the limit on "
                     "open files (ulimit -n, now {}): ulimit -n {}.", *limits.open_files, needed, num_nodes, *limits.open_files,
                     std::max<uint64_t>(needed, 4096));
}

std::string limit_advice(std::string_view message, const Limits& limits) {
  const auto is_hit = [&](std::string_view flag, std::initializer_list<std::string_view> words) {
    return holds_any(message, words) && !holds_any(message, {flag});
  };
  if (is_hit("ulimit -n", {std::strerror(EMFILE), std::strerror(ENFILE), "Too many open files"})) {
    return fmt::format(" Raise the limit on open files (ulimit -n{}): ulimit -n 4096.", now(limits.open_files));
  }
  if (is_hit("ulimit -u", {std::strerror(EAGAIN), "Thread creation failed"})) {
    const std::string stacks = limits.address_space_bytes ? fmt::format(" Or its stack has no place in {}",
                                                                        address_space_advice(limits)) : std::string();
    return fmt::format(" Raise the limit on this user's processes and threads (ulimit -u{}; in a container also pids.max).{}",
                       now(limits.processes), stacks);
  }
  if (limits.address_space_bytes && is_hit("ulimit -v", {std::strerror(ENOMEM), "out of memory", "bad_alloc"})) {
    return " The shell lets this process have " + address_space_advice(limits);
  }
  return {};
}

Error as_error(const std::exception& problem, const Limits& limits) {
  Error error = plain_error(problem);
  if (error.kind() == ErrorKind::Internal && limits.address_space_bytes) {
    // Libraries say in many ways that they got no memory.
    return Error::internal("{}. It may be for lack of memory: this process has {}", error.what(), address_space_advice(limits));
  }
  if (error.kind() != ErrorKind::Environment) return error;
  const std::string advice = limit_advice(error.what(), limits);
  if (advice.empty()) return error;
  const std::string message = error.what();
  return {error.kind(), message + (message.ends_with('.') ? "" : ".") + advice};
}

}  // namespace lockstep::launch
