#pragma once

#include "lockstep/base/files.h"
#include "lockstep/launch/worker_environment.h"

#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// A started worker and this process's ends of its connections; all non-blocking and close-on-exec.
struct WorkerProcess {
  pid_t pid = 0;
  UniqueFd out;
  UniqueFd err;
  UniqueFd control;
};

/// The descriptor under which a worker finds its end of the control socket.
inline constexpr int kWorkerControlFd = 3;

/// Starts `command` (a path, not searched for) as the leader of a new session and process group. It has stdin from
/// /dev/null, stdout and stderr as pipes, the control socket as kWorkerControlFd, and no other descriptor. It is
/// killed when the calling thread ends. `signal_mask` is its initial signal mask; ignored signals stay ignored.
/// Throws Error{Environment} naming the command and the system's words when it cannot be started.
WorkerProcess start_worker(const fs::path& command, const std::vector<std::string>& args,
                           const Environment& environment, const sigset_t& signal_mask);

/// How a child process ended.
struct ExitState {
  int exit_status = 0;
  int signal = 0;
};
/// Reaps `pid` if it has ended; absent while it runs. What is left of its process group is killed first, while its
/// number cannot have been given to another.
std::optional<ExitState> reap_worker(pid_t pid);

/// The state letter in /proc/<pid>/stat (R, S, D, T, Z ...), or '?'.
char process_state(pid_t pid);

}  // namespace lockstep::launch
