#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/limits.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>
#include <vector>

namespace lockstep::launch {

namespace {

constexpr const char* kCpuTime = "it has used all the processor time that the shell lets it have (ulimit -t). Type: ulimit -t "
                                 "unlimited.";

std::string foreign_hint(int signal) {
  switch (signal) {
    case SIGKILL:
      return "lockstep did not send this signal. Most often it is the kernel running out of memory (see dmesg), or the "
             "batch system.";
    case SIGBUS:
      return "a mapped file was cut short or its disk failed, or shared memory (/dev/shm) is full.";
    case SIGILL:
      return "this processor lacks an instruction the program was built with.";
    case SIGXCPU:
      return kCpuTime;
    default:
      return {};
  }
}

std::string hint_for(const WorkerEnd& end) {
  if (end.verdict || end.record) return {};
  if (end.was_out_of_memory) {
    return "the kernel killed it for lack of memory (its control group counts an OOM kill). Use fewer processes or "
           "smaller batches, or ask for more memory.";
  }
  if (end.is_foreign) return foreign_hint(end.signal);
  // Of the loader, of an allocator that gives up: they have said little, if anything.
  const bool may_lack_memory = end.signal == SIGABRT || end.signal == SIGSEGV || end.signal == SIGBUS ||
                               (end.signal == 0 && (end.exit_status == 1 || end.exit_status == 127));
  if (end.address_space_bytes && may_lack_memory) {
    return fmt::format("the shell lets each process have {} (ulimit -v), and a worker's libraries alone take about 500 MiB. Type: ulimit "
                       "-v unlimited.", address_space_words(*end.address_space_bytes));
  }
  if (end.signal == 0 && end.exit_status == 127) {
    return "the program or a library of it could not be loaded; the line above says which.";
  }
  switch (end.signal) {
    case SIGKILL:
      return "nothing in lockstep sent this signal. Most often it is the kernel running out of memory: see dmesg, and "
             "use fewer processes or smaller pieces (--grain_tokens, --gradient_checkpointing true).";
    case SIGBUS:
      return "a mapped file was cut short or its disk failed, or shared memory (/dev/shm) is full.";
    case SIGILL:
      return "this processor lacks an instruction the program was built with.";
    case SIGXCPU:
      return kCpuTime;
    case SIGSEGV:
    case SIGABRT:
    case SIGFPE:
      return "this is a bug of lockstep or of a library; the worker's last lines above may tell more.";
    default:
      return {};
  }
}

/// "Data error, exit code 3", "killed by SIGKILL, exit code 137".
std::string what_happened(const WorkerEnd& end) {
  const auto kind = error_kind(end);
  if (kind) return fmt::format("{} error, exit code {}", name(*kind), exit_code(end));
  if (end.signal != 0) return fmt::format("killed by {}, exit code {}", signal_name(end.signal), exit_code(end));
  return fmt::format("exit code {}", exit_code(end));
}

std::string how_it_ended(const WorkerEnd& end) {
  if (end.still_there) return "cannot be killed (it waits in the kernel)";
  if (error_kind(end) == ErrorKind::Resumable) return "saved its state and ended";
  if (classify(end) == EndClass::Consequence) return what_happened(end) + " (follows from it)";
  if (classify(end) == EndClass::Failure) return what_happened(end) + " (later)";
  if (end.signal == 0 && end.exit_status == 0) return "ended normally";
  const bool had_time = (end.signals_sent & ~(uint64_t{1} << SIGKILL)) != 0;
  return had_time && end.signal == SIGKILL ? "did not stop in time and was killed" : "stopped by lockstep";
}

/// "rank 0 ended normally; ranks 2-3 stopped by lockstep": ranks with the same end together, in order of rank.
std::string describe_ends(std::span<const WorkerEnd> ends, int except_rank) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (const WorkerEnd& end : ends) {
    if (end.world_rank == except_rank) continue;
    const std::string text = how_it_ended(end);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == text; });
    if (group == groups.end()) group = groups.insert(groups.end(), {text, {}});
    group->second.push_back(end.world_rank);
  }
  std::string result;
  for (const auto& [text, ranks] : groups) {
    result += fmt::format("{}{} {}", result.empty() ? "" : "; ", format_ranks(ranks), text);
  }
  return result;
}

std::string indented(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    result.append("  ").append(text.substr(0, end)).append("\n");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return result;
}

std::string_view message_of(const WorkerEnd& end) {
  if (end.verdict) return *end.verdict;
  if (end.torch_error) return end.torch_error->message;
  if (end.left_early && !end.record) {
    return "it left with status 0 before it had done what it was started for. Something ended it quietly: a library in "
           "LD_PRELOAD, a wrapper, or another program in the place of lockstep-worker.";
  }
  return end.record ? std::string_view(end.record->message) : std::string_view();
}

/// Nothing failed: the workers were asked to stop, and have saved what they had. Rank 0 says it for all nodes.
std::string stop_on_request_report(std::span<const WorkerEnd> ends) {
  for (const WorkerEnd& end : ends) {
    const bool speaks = end.world_rank == 0 && end.record && end.record->kind == ErrorKind::Resumable;
    if (speaks) return fmt::format("lockstep: {}\n", end.record->message);
  }
  return {};
}

std::string cause_report(std::span<const WorkerEnd> ends, const WorkerEnd& first, const std::string& reason) {
  const std::string& phase = first.record && !first.record->phase.empty() ? first.record->phase : first.phase;
  std::string report = fmt::format("lockstep: rank {} (pid {}) failed{}: {}{}\n", first.world_rank, first.pid,
                                   ends.size() > 1 ? " first" : "", what_happened(first),
                                   phase.empty() ? "" : ", during: " + phase);
  report += indented(message_of(first));
  if (!first.last_lines.empty()) report += "  the end of its stderr:\n" + indented(indented(first.last_lines));
  if (const std::string hint = hint_for(first); !hint.empty()) report += indented("hint: " + hint);
  if (ends.size() > 1) {
    report += indented("others: " + describe_ends(ends, first.world_rank));
    if (!reason.empty()) report += indented("taken as the cause because: " + reason);
  }
  return report;
}

}  // namespace

std::string cause_in_a_line(const WorkerEnd& end) {
  return fmt::format("rank {} (pid {}): {}", end.world_rank, end.pid, what_happened(end));
}

std::string failure_report(std::span<const WorkerEnd> ends, const std::optional<Cause>& cause, int interrupted_by) {
  std::string report;
  if (interrupted_by != 0) {
    report = fmt::format("lockstep: stopped by {}: {}\n", signal_name(interrupted_by), describe_ends(ends, -1));
  }
  if (!cause) return report + stop_on_request_report(ends);
  const auto first = std::find_if(ends.begin(), ends.end(),
                                  [&](const WorkerEnd& end) { return end.world_rank == cause->world_rank; });
  // Workers that lose a partner to the same interrupt report it; that is no failure.
  if (interrupted_by != 0 && classify(*first) == EndClass::Consequence) return report;
  return report + cause_report(ends, *first, cause->reason);
}

std::string signal_name(int number) {
  const char* abbreviation = sigabbrev_np(number);
  return abbreviation != nullptr ? std::string("SIG") + abbreviation : fmt::format("signal {}", number);
}

std::string format_ranks(std::span<const int> sorted_ranks) {
  if (sorted_ranks.empty()) return "none";
  std::string text = sorted_ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t first = 0; first < sorted_ranks.size();) {
    size_t last = first;
    while (last + 1 < sorted_ranks.size() && sorted_ranks[last + 1] == sorted_ranks[last] + 1) ++last;
    if (first > 0) text += ", ";
    text += std::to_string(sorted_ranks[first]);
    if (last > first) text += fmt::format("-{}", sorted_ranks[last]);
    first = last + 1;
  }
  return text;
}

std::string silence_message(int world_rank, pid_t pid, double silence_s, char state) {
  const auto why = [&]() -> std::string_view {
    switch (state) {
      case 'T':
      case 't':
        return "It is stopped (SIGSTOP, or a debugger). Nothing of the run is kept: start it again and leave it running.";
      case 'D':
        return "It waits in the kernel, as a rule for a disk or a network file system.";
      case 'R':
        return "It is ready to run but gets no processor: the machine is overloaded. Use fewer processes or threads.";
      default:
        return "Its threads are blocked, or it hung while ending.";
    }
  };
  return fmt::format("rank {} (pid {}) gave no sign of life for {:.1f} s and is taken for dead. {}", world_rank, pid,
                     silence_s, why());
}

std::string start_message(std::span<const int> missing, std::span<const int> present, double waited_s) {
  return fmt::format("{} did not start within {:.1f} s (present: {}). Look for a slow disk or a library that cannot be "
                     "loaded, or raise the start timeout.", format_ranks(missing), waited_s, format_ranks(present));
}

}  // namespace lockstep::launch
