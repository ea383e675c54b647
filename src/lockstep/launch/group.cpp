#include "lockstep/launch/group.h"

#include "lockstep/base/error.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/launch/failure_report.h"
#include "lockstep/launch/line_multiplexer.h"
#include "lockstep/launch/messages.h"
#include "lockstep/launch/output_queue.h"
#include "lockstep/launch/process.h"
#include "lockstep/launch/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <utility>

namespace lockstep::launch {

namespace {

/// The loop wakes at least this often to look at deadlines.
constexpr int kRound_ms = 100;
/// Output waiting for a slow reader; beyond it the workers' pipes are left to fill, which stops the writers.
constexpr size_t kMaxQueuedBytes = 1 << 20;

Milliseconds monotonic_now() { return std::chrono::duration_cast<Milliseconds>(Clock::now().time_since_epoch()); }

double seconds(Milliseconds span) { return std::chrono::duration<double>(span).count(); }

bool same_file(int a, int b) {
  struct stat first = {};
  struct stat second = {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

class Group {
 public:
  Group(const GroupSpec& spec, const Outputs& outputs)
      : spec_(spec),
        same_target_(same_file(outputs.out_fd, outputs.err_fd)),
        queues_{OutputQueue(outputs.out_fd), OutputQueue(outputs.err_fd)},
        lines_(spec.num_workers,
               {.out_is_terminal = isatty(outputs.out_fd) != 0, .err_is_terminal = isatty(outputs.err_fd) != 0,
                .same = same_target_},
               [this](Stream stream, std::string_view bytes) { queue(stream).push(bytes); }),
        terminal_columns_(terminal_columns(outputs.err_fd)) {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    for (const Worker& worker : workers_) {
      if (!worker.running) continue;
      kill(-worker.process.pid, SIGKILL);
      waitpid(worker.process.pid, nullptr, 0);
    }
  }

  GroupResult run() {
    start_all();
    Supervisor supervisor(spec_.num_workers, spec_.timeouts, monotonic_now());
    while (!supervisor.all_ended()) {
      const std::vector<pollfd> ready = wait_for_events();
      supervisor.advance(monotonic_now());
      // Signals first: a child's end is then always seen together with all that it said before.
      const bool child_ended = read_signals(supervisor);
      for (const pollfd& descriptor : ready) read_from(descriptor.fd, supervisor);
      if (child_ended) reap(supervisor);
      for (const Action& action : supervisor.tick()) act(action, supervisor);
      write_outputs();
    }
    return finish(supervisor.interrupted_by());
  }

 private:
  struct Worker {
    WorkerProcess process;
    WorkerEnd end;
    bool running = true;
  };

  OutputQueue& queue(Stream stream) { return queues_[same_target_ ? 0 : static_cast<size_t>(stream)]; }
  Worker& worker(int rank) { return workers_[static_cast<size_t>(rank)]; }
  void say(const std::string& text) { lines_.print(Stream::Err, "lockstep: " + text + "\n"); }

  void start_all() {
    const Environment inherited = current_environment();
    const int num_threads = threads_per_worker(spec_.threads_per_process, available_cores(), spec_.num_workers);
    const std::string cbwr = mkl_cbwr(cpu_flags());
    for (int rank = 0; rank < spec_.num_workers; ++rank) {
      const Environment environment = worker_environment(
          inherited, spec_.env,
          {.local_rank = rank, .num_workers = spec_.num_workers, .num_threads = num_threads,
           .run_folder = spec_.run_folder, .control_fd = kWorkerControlFd, .mkl_cbwr = cbwr,
           .terminal_columns = terminal_columns_});
      Worker started;
      started.process = start_worker(spec_.command, spec_.args, environment, signals_.mask_before());
      started.end.world_rank = rank;
      started.end.pid = started.process.pid;
      workers_.push_back(std::move(started));
    }
  }

  /// The descriptors that can be read.
  std::vector<pollfd> wait_for_events() {
    std::vector<pollfd> waited = {{signals_.fd(), POLLIN, 0}};
    for (const Worker& w : workers_) {
      if (w.process.control.get() >= 0) waited.push_back({w.process.control.get(), POLLIN, 0});
      for (const Stream stream : {Stream::Out, Stream::Err}) {
        const int fd = pipe_of(w, stream).get();
        if (fd >= 0 && queue(stream).size() < kMaxQueuedBytes) waited.push_back({fd, POLLIN, 0});
      }
    }
    for (const OutputQueue& q : queues_) {
      if (!q.empty()) waited.push_back({q.fd(), POLLOUT, 0});
    }
    poll(waited.data(), waited.size(), kRound_ms);
    std::erase_if(waited, [](const pollfd& p) { return p.revents == 0 || (p.events & POLLIN) == 0; });
    return waited;
  }

  static const UniqueFd& pipe_of(const Worker& w, Stream stream) {
    return stream == Stream::Out ? w.process.out : w.process.err;
  }
  static UniqueFd& pipe_of(Worker& w, Stream stream) { return stream == Stream::Out ? w.process.out : w.process.err; }

  /// True when a child has ended.
  bool read_signals(Supervisor& supervisor) {
    bool child_ended = false;
    for (const int signal : signals_.read()) {
      if (signal == SIGCHLD) {
        child_ended = true;
        continue;
      }
      say(fmt::format("{}: {}", signal_name(signal),
                      supervisor.interrupted_by() == 0 ? "passed on to the workers; a second one kills them"
                                                       : "killing the workers"));
      for (const Action& action : supervisor.interrupt(signal)) act(action, supervisor);
    }
    return child_ended;
  }

  void read_from(int fd, Supervisor& supervisor) {
    for (Worker& w : workers_) {
      if (fd == w.process.control.get()) return read_control(w, supervisor);
      if (fd == w.process.out.get()) return static_cast<void>(read_output(w, Stream::Out));
      if (fd == w.process.err.get()) return static_cast<void>(read_output(w, Stream::Err));
    }
  }

  /// Bytes handed on; 0 when there are none now, or no more at all (the pipe is then closed).
  size_t read_output(Worker& w, Stream stream) {
    std::array<char, 64 * 1024> buffer;
    const ssize_t got = read(pipe_of(w, stream).get(), buffer.data(), buffer.size());
    if (got > 0) {
      lines_.feed(w.end.world_rank, stream, {buffer.data(), static_cast<size_t>(got)});
      return static_cast<size_t>(got);
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) close_output(w, stream);
    return 0;
  }

  void close_output(Worker& w, Stream stream) {
    lines_.finish(w.end.world_rank, stream);
    pipe_of(w, stream).reset();
  }

  /// Of a worker that has ended, the pipe holds at most its capacity: a stranger that still has it open (a daemon the
  /// worker left) cannot keep this loop going.
  void drain_output(Worker& w, Stream stream) {
    const int fd = pipe_of(w, stream).get();
    if (fd < 0) return;
    size_t left = static_cast<size_t>(std::max(fcntl(fd, F_GETPIPE_SZ), 1 << 16));
    while (left > 0 && pipe_of(w, stream).get() >= 0) {
      const size_t got = read_output(w, stream);
      if (got == 0) break;
      left -= std::min(left, got);
    }
    if (pipe_of(w, stream).get() >= 0) close_output(w, stream);
  }

  void read_control(Worker& w, Supervisor& supervisor) {
    std::array<char, kMaxMessageBytes> buffer;
    while (w.process.control.get() >= 0) {
      const ssize_t got = recv(w.process.control.get(), buffer.data(), buffer.size(), 0);
      if (got > 0) {
        take_message(w, {buffer.data(), static_cast<size_t>(got)}, supervisor);
      } else if (got < 0 && errno == EINTR) {
        continue;
      } else if (got < 0 && errno == EAGAIN) {
        return;
      } else {
        // Closed by a worker that ends, or that hangs while ending: its silence goes on to count.
        w.process.control.reset();
      }
    }
  }

  void take_message(Worker& w, std::string_view packet, Supervisor& supervisor) {
    const int rank = w.end.world_rank;
    const auto message = decode(packet);
    if (!message) return say(fmt::format("rank {} sent an unknown message: \"{}\"", rank, packet.substr(0, 80)));
    supervisor.heard(rank);
    switch (message->type) {
      case MessageType::Hello:
      case MessageType::Beat:
        break;
      case MessageType::Phase:
        w.end.phase = message->text;
        break;
      case MessageType::Done:
        if (rank == 0) done_text_ = message->text;
        break;
      case MessageType::Failed:
        w.end.record = read_error_record(spec_.run_folder, rank);
        if (w.end.record) supervisor.failed(rank, classify(w.end));
        break;
    }
  }

  void reap(Supervisor& supervisor) {
    for (Worker& w : workers_) {
      if (!w.running) continue;
      const auto state = reap_worker(w.process.pid);
      if (!state) continue;
      w.running = false;
      w.end.exit_status = state->exit_status;
      w.end.signal = state->signal;
      if (!w.end.verdict) w.end.time = unix_seconds();
      read_control(w, supervisor);
      w.process.control.reset();
      drain_output(w, Stream::Out);
      drain_output(w, Stream::Err);
      if (!w.end.record) w.end.record = read_error_record(spec_.run_folder, w.end.world_rank);
      supervisor.ended(w.end.world_rank, classify(w.end));
    }
  }

  void act(const Action& action, const Supervisor& supervisor) {
    using What = Action::What;
    switch (action.what) {
      case What::Waiting:
        return say(fmt::format("waiting for {} to start for {:.0f} s (present: {}; {:.0f} s left)",
                               format_ranks(supervisor.ranks_missing()), seconds(action.span),
                               format_ranks(supervisor.ranks_present()),
                               seconds(spec_.timeouts.start - action.span)));
      case What::Signal: {
        Worker& w = worker(action.rank);
        if (kill(-w.process.pid, action.signal) == 0) w.end.signals_sent |= uint64_t{1} << action.signal;
        return;
      }
      case What::Suspect: {
        const pid_t pid = worker(action.rank).process.pid;
        return say(fmt::format("rank {} (pid {}) has given no sign of life for {:.1f} s (process state {}); it is "
                               "taken for dead at {:.1f} s", action.rank, pid, seconds(action.span),
                               process_state(pid), seconds(spec_.timeouts.dead)));
      }
      case What::Recovered:
        return say(fmt::format("rank {} is back after {:.1f} s", action.rank, seconds(action.span)));
      case What::Silent: {
        Worker& w = worker(action.rank);
        return declare_dead(w, silence_message(action.rank, w.process.pid, seconds(action.span),
                                               process_state(w.process.pid)));
      }
      case What::NotStarted:
        return declare_dead(worker(action.rank), start_message(supervisor.ranks_missing(), supervisor.ranks_present(),
                                                               seconds(action.span)));
      case What::Unkillable: {
        // Not waited for: the front program ends, and init inherits the process once the kernel lets go of it.
        Worker& w = worker(action.rank);
        w.running = false;
        w.end.still_there = true;
        if (!w.end.verdict) w.end.time = unix_seconds();
        return say(fmt::format("rank {} (pid {}) does not end although it was killed (process state {}): left behind",
                               action.rank, w.process.pid, process_state(w.process.pid)));
      }
    }
  }

  static void declare_dead(Worker& w, std::string verdict) {
    w.end.verdict = std::move(verdict);
    w.end.time = unix_seconds();
  }

  void write_outputs() {
    for (const Stream stream : {Stream::Out, Stream::Err}) {
      OutputQueue& q = queue(stream);
      const bool was_well = q.problem().empty();
      q.write_some();
      if (!was_well || q.problem().empty() || same_target_) continue;
      const Stream other = stream == Stream::Out ? Stream::Err : Stream::Out;
      lines_.print(other, fmt::format("lockstep: {} cannot be written ({}); the run goes on without it\n",
                                      stream == Stream::Out ? "stdout" : "stderr", q.problem()));
    }
  }

  GroupResult finish(int interrupted_by) {
    GroupResult result{.interrupted_by = interrupted_by, .done_text = std::move(done_text_)};
    for (Worker& w : workers_) result.ends.push_back(w.end);
    result.cause = first_cause(result.ends);
    result.exit_code = group_exit_code(result.ends, result.cause, interrupted_by);
    result.report = failure_report(result.ends, result.cause, interrupted_by);
    if (!result.report.empty()) lines_.print(Stream::Err, result.report);
    flush();
    return result;
  }

  /// Waits for slow readers; a signal ends the wait.
  void flush() {
    for (write_outputs(); !queues_[0].empty() || !queues_[1].empty(); write_outputs()) {
      std::vector<pollfd> waited = {{signals_.fd(), POLLIN, 0}};
      for (const OutputQueue& q : queues_) {
        if (!q.empty()) waited.push_back({q.fd(), POLLOUT, 0});
      }
      poll(waited.data(), waited.size(), -1);
      const std::vector<int> signals = signals_.read();
      if (std::any_of(signals.begin(), signals.end(), [](int signal) { return signal != SIGCHLD; })) return;
    }
  }

  const GroupSpec& spec_;
  SignalReader signals_;
  bool same_target_;
  std::array<OutputQueue, 2> queues_;  ///< by Stream; only the first is used when both are one target
  LineMultiplexer lines_;
  std::optional<int> terminal_columns_;
  std::vector<Worker> workers_;
  std::string done_text_;
};

}  // namespace

GroupResult run_group(const GroupSpec& spec, const Outputs& outputs) { return Group(spec, outputs).run(); }

}  // namespace lockstep::launch
