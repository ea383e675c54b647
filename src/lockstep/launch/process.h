#pragma once

#include "lockstep/base/files.h"
#include "lockstep/launch/worker_environment.h"

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// A started worker and this process's ends of its connections (those it has); all non-blocking and close-on-exec.
struct WorkerProcess {
  pid_t pid = 0;
  UniqueFd out;
  UniqueFd err;
  UniqueFd control;
};

/// The descriptor under which a worker finds its end of the control socket.
inline constexpr int kWorkerControlFd = 3;

enum class StreamTarget {
  Inherit,  ///< this process's own stream
  Null,     ///< /dev/null
  Pipe,     ///< a pipe that this process reads
};

struct ProcessPlan {
  const std::vector<std::string>& argv;  ///< argv[0] is a path, not searched for
  const Environment& environment;
  StreamTarget in = StreamTarget::Null;  ///< not Pipe
  StreamTarget out = StreamTarget::Pipe;
  StreamTarget err = StreamTarget::Pipe;
  bool has_control = false;              ///< the control socket as kWorkerControlFd
  sigset_t signal_mask = {};             ///< its initial signal mask; ignored signals stay ignored
  std::optional<rlimit> open_files = {}; ///< its limit on open files; absent: this process's
};

/// Starts a program as the leader of a new session and process group, with no other descriptors than the plan's. It is
/// killed when the calling thread ends. Throws Error{Environment} naming the program and the system's words when it
/// cannot be started.
///
/// The child borrows this process's memory until it runs the program (as posix_spawn does), so the time does not
/// depend on the size of this process.
WorkerProcess start_process(const ProcessPlan& plan);

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
/// Whether one of its threads runs or would run if a processor were free.
bool has_runnable_thread(pid_t pid);

/// Opens /dev/null for those of 0, 1 and 2 that are closed, so that no other descriptor takes their number.
void keep_standard_descriptors_open();

}  // namespace lockstep::launch
