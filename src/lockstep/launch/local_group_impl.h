#pragma once

// Private to local_group*.cpp.
#include "lockstep/launch/guard.h"
#include "lockstep/launch/local_group.h"
#include "lockstep/launch/open_files.h"

#include <poll.h>

#include <functional>
#include <utility>

namespace lockstep::launch {

struct LocalGroup::Impl {
  struct Worker {
    WorkerProcess process;
    WorkerEnd end;
    bool running = true;
    bool has_joined = false;  ///< Own: it has said hello
  };

  Impl(GroupSettings given, Console& to_console, OutputSink& to_sink);
  ~Impl();

  bool is_own() const { return settings.kind == GroupSettings::Kind::Own; }
  Worker& worker(int index) { return workers[static_cast<size_t>(index)]; }
  bool running() const { return supervisor && !supervisor->all_ended(); }
  /// Local indexes as world ranks.
  std::vector<int> world_ranks(const std::vector<int>& indexes) const;

  // local_group.cpp: a round and what drives it
  void start(const std::vector<WorkerStart>& starts);
  void start_one(const WorkerStart& start);
  std::vector<pollfd> wait_for_events(Milliseconds longest, net::EventLoop* loop);
  /// Returns the signal that interrupts the process for the first time, or 0.
  int take_signal(int signal, int interrupted_by);
  void pass_on(int signal);
  sigset_t worker_mask() const;
  void act_all(const std::vector<Action>& actions);
  void act(const Action& action);
  void send(Worker& w, int signal);

  // local_group_io.cpp: what workers say
  void read_from(int fd);
  /// Bytes handed on; 0 when there are none now, or no more at all (the pipe is then closed).
  size_t read_output(Worker& w, Stream stream);
  void close_output(Worker& w, Stream stream);
  void drain_output(Worker& w, Stream stream);
  void read_control(Worker& w);
  void take_message(Worker& w, std::string_view packet);
  static UniqueFd& pipe_of(Worker& w, Stream stream) { return stream == Stream::Out ? w.process.out : w.process.err; }

  // local_group_end.cpp: ends
  void reap();
  void reap_one(Worker& w);
  void reap_all_children();
  void replace_guard();
  void kill_orphans();
  void kill_all_now();
  bool reap_killed();
  void leave_behind(Worker& w);

  GroupSettings settings;
  Console& console;
  OutputSink& sink;
  SignalReader signals;
  OpenFileLimit open_files;
  std::unique_ptr<ProcessGuard> guard;  ///< Foreign
  int was_subreaper = 0;
  std::vector<pid_t> children_before;  ///< what a shell started before it became lockstep is none of the job's
  std::vector<Worker> workers;
  std::optional<Supervisor> supervisor;  ///< of the round
  std::string done_text;
};

}  // namespace lockstep::launch
