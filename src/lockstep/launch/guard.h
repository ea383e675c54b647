#pragma once

#include "lockstep/base/files.h"

#include <sys/types.h>

#include <atomic>
#include <span>

namespace lockstep::launch {

/// A small process that outlives this one by a moment: should this one be killed, it kills the process groups it was
/// told about, so that what workers have started does not stay behind. It ends with this object. It learns of the
/// groups through shared memory and sleeps until the end, so it costs a running job nothing.
class ProcessGuard {
 public:
  static constexpr size_t kMaxGroups = 10'000;  ///< at a time; a node has fewer workers

  /// Throws Error{Environment} when it cannot be started.
  ProcessGuard();
  ProcessGuard(const ProcessGuard&) = delete;
  ProcessGuard& operator=(const ProcessGuard&) = delete;
  ~ProcessGuard();

  void watch(pid_t group) { replace(0, group); }
  /// Before the leader is reaped: afterwards its number may belong to another.
  void forget(pid_t group) { replace(group, 0); }
  pid_t pid() const { return pid_; }

 private:
  void replace(pid_t from, pid_t to);

  std::span<std::atomic<pid_t>> groups_;  ///< shared with the guard; 0: free
  pid_t pid_ = -1;
  UniqueFd alive_;  ///< the guard reads the other end: end of file means that this process is gone
};

}  // namespace lockstep::launch
