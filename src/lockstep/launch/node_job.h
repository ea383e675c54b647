#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/launch/run_spec.h"
#include "lockstep/launch/worker_end.h"

#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::net {
class EventLoop;
}

namespace lockstep::launch {

/// How a round ended on this node.
struct RoundOutcome {
  bool succeeded = false;              ///< every worker ended with 0
  int exit_code = 0;                   ///< of the first cause, see group_exit_code()
  std::optional<Cause> cause = {};     ///< absent: success, or stopped from outside
  std::vector<WorkerEnd> ends = {};    ///< by local rank
  /// "rank 3 (pid 71): exit code 7": the first cause in a line; empty without one.
  std::string cause_text = {};
};

/// What an agent runs on its node, round by round: start(); step() while running(); take_outcome(); perhaps again; then
/// finish(). Thread rules of LocalGroup.
class NodeJob {
 public:
  virtual ~NodeJob() = default;
  /// Begins a round. Throws Error when a worker cannot be started.
  virtual void start(const Placement& placement) = 0;
  /// Sends `signal` to all workers that run, and SIGKILL after `grace`.
  virtual void stop(int signal, Milliseconds grace) = 0;
  /// The same after a failure elsewhere: the workers cannot go on, and have nothing to save.
  virtual void give_up(Milliseconds grace) { stop(SIGTERM, grace); }
  /// Waits for an event, at most `longest`, and serves `loop` on the way. Without a round too.
  virtual void step(Milliseconds longest, net::EventLoop* loop) = 0;
  virtual bool running() const = 0;
  /// The first ending signal that this process got, or 0. It has been passed on, and no round may follow.
  virtual int interrupted_by() const = 0;
  /// Once running() is false after start().
  virtual RoundOutcome take_outcome() = 0;
  /// Prints the report of the last outcome and tidies up. `elsewhere` is the first cause in a line when it lies on
  /// another node: it is printed in place of a report. Returns the exit code (`elsewhere_code` with `elsewhere`).
  virtual int finish(const RoundOutcome& outcome, const std::string& elsewhere, int elsewhere_code) = 0;
  /// A line for the user.
  virtual void say(const std::string& text) = 0;
};

}  // namespace lockstep::launch
