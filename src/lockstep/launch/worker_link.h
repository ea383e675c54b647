#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/worker_environment.h"

#include <memory>
#include <string_view>

namespace lockstep::launch {

inline constexpr Milliseconds kBeatPeriod{200};

/// The worker's end of the link. Says hello when made, then beats from its own thread until destroyed; keep it alive
/// until the end of main(), since silence counts as a hang. When the front program dies, that thread ends the process
/// (and its process group, if it leads one) at once with SIGKILL, so no orphan goes on computing.
/// Without a control descriptor in the environment (a worker run by hand) nothing is sent and no thread exists.
/// phase(), done() and fail() never block on the front program and may be called from any thread. Move-only.
class WorkerLink {
 public:
  /// Reads the process's environment. Throws Error{Usage} as parse_worker_environment does, and when
  /// LOCKSTEP_CONTROL_FD does not name an open socket.
  static WorkerLink from_environment();
  explicit WorkerLink(WorkerEnvironment environment);
  WorkerLink(WorkerLink&&) noexcept;
  WorkerLink& operator=(WorkerLink&&) noexcept;
  /// Waits at most one second for what is still to be sent.
  ~WorkerLink();

  const WorkerEnvironment& environment() const;
  int world_rank() const { return environment().world_rank; }
  int world_size() const { return environment().world_size; }
  bool connected() const;

  /// What the worker does now ("load the model", "update 12"): part of every later failure report.
  void phase(std::string_view text);
  /// The run's last line, printed by the front program after everything else. The last call counts.
  void done(std::string_view text);
  /// Writes the error record into the run folder (to stderr when there is none or it cannot be written), then tells
  /// the front program. The caller then ends the process with error.exit_code(). Only the first call counts.
  void fail(const Error& error);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::launch
