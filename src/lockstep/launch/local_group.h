#pragma once

#include "lockstep/launch/console.h"
#include "lockstep/launch/process.h"
#include "lockstep/launch/signals.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/launch/worker_end.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::net {
class EventLoop;
}

namespace lockstep::launch {

/// One worker to be started.
struct WorkerStart {
  int world_rank = 0;
  std::vector<std::string> argv = {};  ///< argv[0] is a path, not searched for
  Environment environment = {};
  StreamTarget out = StreamTarget::Pipe;
  StreamTarget err = StreamTarget::Pipe;
};

struct GroupSettings {
  enum class Kind {
    Own,      ///< lockstep's workers: control socket, beats, error records; stdin is /dev/null
    Foreign,  ///< any program: noticed by its end alone; inherits stdin
  };
  Kind kind = Kind::Own;
  fs::path record_folder = {};  ///< Own: where workers leave their error records
  GroupTimeouts timeouts = {};
  std::vector<int> ending_signals = kUsualSignals;  ///< passed on, and the group ends; a second one kills
  /// Passed on, and nothing else. Own workers start with them blocked, so that none is killed before it can heed one.
  std::vector<int> passed_signals = {};
  std::string passed_words = "which go on";         ///< "SIGUSR1: passed on to the workers, which go on"
};

/// The workers of one node, over any number of rounds, and the signals of the process. start() a round, step() until
/// running() is false, read ends(); then perhaps the next round. Call everything from the main thread of a program
/// without other threads: it blocks signals for the calling thread; workers die with that thread. With Kind::Foreign
/// the process adopts (and reaps, and at the end of a failed round kills) what its workers leave behind, and a small
/// guard process kills the workers' process groups should this process be killed.
class LocalGroup {
 public:
  /// `console` must outlive this; `sink` gets the bytes of piped streams (usually the console itself).
  LocalGroup(GroupSettings settings, Console& console, OutputSink& sink);
  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;
  /// Kills what still runs.
  ~LocalGroup();

  /// Starts a round; none may be running. Throws Error{Environment} when a worker cannot be started (those already
  /// started are killed).
  void start(const std::vector<WorkerStart>& workers);
  /// Sends `signal` to all workers that run, and SIGKILL after `grace`. A second call can only shorten the grace.
  void stop(int signal, Milliseconds grace);
  /// Waits for an event, at most `longest`: output, signals, ends of workers, and what `loop` waits for, which is
  /// served on the way. Can be called without a round too.
  void step(Milliseconds longest, net::EventLoop* loop = nullptr);
  bool running() const;

  /// Of the last round, by local rank; complete once running() is false.
  std::vector<WorkerEnd> ends() const;
  /// The first ending signal that this process got, or 0. It ends the job: no round may follow.
  int interrupted_by() const { return interrupted_by_; }
  /// Kind::Own: rank 0's last line.
  const std::string& done_text() const;
  /// Waits until all output has been handed on.
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  int interrupted_by_ = 0;
};

}  // namespace lockstep::launch
