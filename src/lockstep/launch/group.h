#pragma once

#include "lockstep/base/files.h"
#include "lockstep/launch/console.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/launch/worker_end.h"
#include "lockstep/launch/worker_environment.h"

#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// The workers of one run on this node.
struct GroupSpec {
  fs::path command;               ///< path of the worker program; not searched for
  std::vector<std::string> args = {};  ///< without the program's name
  int num_workers = 1;
  EnvironmentPairs env = {};      ///< the user's own variables
  fs::path run_folder;            ///< exists, mode 0700; workers leave their error records there
  GroupTimeouts timeouts = {};
  std::optional<int> threads_per_process = {};
};

struct GroupResult {
  int exit_code = 0;
  std::optional<Cause> cause = {};
  std::vector<WorkerEnd> ends = {};  ///< by rank
  int interrupted_by = 0;       ///< the first signal the front program got, or 0
  std::string done_text = {};   ///< rank 0's last line
  std::string report = {};      ///< the failure report; already printed
};

/// Starts the workers, carries their output, passes on SIGINT, SIGTERM, SIGHUP and SIGQUIT (those not ignored at the
/// call), stops all when one fails, and returns when every worker has been reaped and every byte handed on. The
/// failure report is the last thing written to err_fd.
/// Call from the main thread of a program without other threads: it blocks signals for the calling thread and forks;
/// workers die with the calling thread. Signal mask and handlers are as before on return.
/// Throws Error{Environment} when a worker cannot be started (those already started are killed), Error{Usage} for a
/// bad pair in `env`.
GroupResult run_group(const GroupSpec& spec, const Outputs& outputs);

}  // namespace lockstep::launch
