#pragma once

#include "lockstep/launch/worker_end.h"

#include <span>
#include <string>

namespace lockstep::launch {

/// What the front program prints last: what failed first (rank, kind, exit code or signal, phase, message, a hint) and
/// in one line how the others ended. Ends in a newline. Empty when no worker failed and nothing interrupted the group.
std::string failure_report(std::span<const WorkerEnd> ends, const std::optional<Cause>& cause, int interrupted_by);

/// "rank 3 (pid 71): killed by SIGSEGV, exit code 139".
std::string cause_in_a_line(const WorkerEnd& end);

/// "SIGKILL"; "signal 45" for one without a name.
std::string signal_name(int number);
/// {0, 1, 2, 5} gives "ranks 0-2, 5", {3} "rank 3", none "none".
std::string format_ranks(std::span<const int> sorted_ranks);

/// Why a worker that was silent for `silence_s` was given up. `state` is its letter in /proc/<pid>/stat, or '?'.
std::string silence_message(int world_rank, pid_t pid, double silence_s, char state);
/// Why the group never began.
std::string start_message(std::span<const int> missing, std::span<const int> present, double waited_s);

}  // namespace lockstep::launch
