#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/launch/worker_end.h"

#include <csignal>
#include <optional>
#include <vector>

namespace lockstep::launch {

struct GroupTimeouts {
  Milliseconds start{60'000};            ///< until every worker has said hello
  Milliseconds suspect{1'500};           ///< silence that is reported
  Milliseconds dead{5'000};              ///< silence that ends the group
  Milliseconds starved{60'000};          ///< the same of a worker that is ready to run and gets no processor
  Milliseconds consequence_wait{500};    ///< after a Peer or Timeout error, for the worker that caused it to report
  Milliseconds stop_grace{3'000};        ///< from SIGTERM to SIGKILL after a failure
  Milliseconds interrupt_grace{25'000};  ///< from a forwarded signal to SIGKILL: workers save their state meanwhile
  Milliseconds kill_wait{10'000};        ///< from SIGKILL until a worker is left behind as unkillable
  int failure_signal = SIGTERM;          ///< what workers get when another has failed
};

/// What the event loop has to do.
struct Action {
  enum class What {
    Signal,      ///< send `signal` to the process group of `rank`
    Suspect,     ///< report: `rank` has been silent for `span`
    Recovered,   ///< report: `rank` is heard again after `span`
    Silent,      ///< declare `rank` dead after `span` of silence (its kill follows as a Signal)
    Waiting,     ///< report: after `span` some workers have not said hello
    NotStarted,  ///< declare `rank` dead: no hello within `span`
    Unkillable,  ///< leave `rank` behind
  };
  What what;
  int rank = -1;
  int signal = 0;
  Milliseconds span{0};
  bool operator==(const Action&) const = default;
};

/// The decisions about a running group, without a system call or a clock: the event loop tells what it saw and when,
/// and does what is returned. Not thread-safe.
///
/// Silence and start-up are measured in observed time: of a gap between two advance() calls only kMaxCountedGap counts,
/// so that a front program which itself got no processor (or was stopped) does not blame its workers.
class Supervisor {
 public:
  static constexpr Milliseconds kMaxCountedGap{200};

  /// Beats::None: workers say nothing, so none counts as not started or silent.
  enum class Beats { Expected, None };
  Supervisor(int num_workers, const GroupTimeouts& timeouts, Milliseconds now, Beats beats = Beats::Expected);

  /// First call of each round of the event loop; `now` never decreases.
  void advance(Milliseconds now);
  /// `rank` sent a message.
  void heard(int rank);
  /// `rank`, one of suspects(), has a thread that is ready to run: the machine is overloaded, or a large process ends.
  void runnable(int rank);
  /// `rank` said that it failed, and will end by itself.
  void failed(int rank, EndClass end_class);
  /// `rank` ended.
  void ended(int rank, EndClass end_class);
  /// The front program got a signal: the first is passed on, a second one kills.
  std::vector<Action> interrupt(int signal);
  /// From outside: `signal` to all who run, SIGKILL after `grace`. While they stop already, it can only come sooner.
  std::vector<Action> stop(int signal, Milliseconds grace);
  /// Last call of each round.
  std::vector<Action> tick();

  /// The latest time at which tick() should be called again; absent: when something has happened.
  std::optional<Milliseconds> next_tick() const;
  bool all_ended() const;
  int interrupted_by() const { return interrupted_by_; }
  std::vector<int> ranks_missing() const;
  std::vector<int> ranks_present() const;
  /// Who is silent: runnable() is to be told of them before each tick().
  std::vector<int> suspects() const;

 private:
  struct Worker {
    bool started = false;
    bool suspect = false;
    bool failing = false;  ///< ends by itself; not sent SIGTERM
    bool dead = false;     ///< declared dead: killed at once
    bool killed = false;
    bool over = false;     ///< ended, or left behind
    Milliseconds last_heard{0};
    std::optional<Milliseconds> last_runnable;
  };

  void note_failure(EndClass end_class);
  void check_start(std::vector<Action>& actions);
  void check_silence(std::vector<Action>& actions);
  void begin_stop(std::vector<Action>& actions);
  void signal_all(int signal, std::vector<Action>& actions) const;
  void kill_all(std::vector<Action>& actions);

  GroupTimeouts timeouts_;
  Beats beats_;
  std::vector<Worker> workers_;
  std::vector<Action> pending_;  ///< from heard(), given out by tick()
  Milliseconds now_;
  Milliseconds observed_{0};
  Milliseconds next_waiting_report_{5'000};
  int interrupted_by_ = 0;
  std::optional<Milliseconds> stop_at_;  ///< when to begin to stop
  bool stopping_ = false;
  std::optional<Milliseconds> kill_at_;
  std::optional<Milliseconds> leave_at_;
};

}  // namespace lockstep::launch
