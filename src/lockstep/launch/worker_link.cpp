#include "lockstep/launch/worker_link.h"

#include "lockstep/launch/error_record.h"
#include "lockstep/launch/messages.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace lockstep::launch {

namespace {

enum class Sent { Yes, Later, FrontIsGone };

Sent send_now(int fd, const Message& message) {
  const std::string packet = encode(message);
  while (send(fd, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? Sent::Later : Sent::FrontIsGone;
  }
  return Sent::Yes;
}

[[noreturn]] void end_process_group() {
  // The launcher makes every worker the leader of its own group; a worker run by hand may share its shell's.
  if (getpgrp() == getpid()) kill(0, SIGKILL);
  _exit(128 + SIGKILL);
}

/// Signals are for the program's own threads; a handler must not run on the link's.
class BlockAllSignals {
 public:
  BlockAllSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  BlockAllSignals(const BlockAllSignals&) = delete;
  BlockAllSignals& operator=(const BlockAllSignals&) = delete;
  ~BlockAllSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

struct WorkerLink::Impl {
  explicit Impl(WorkerEnvironment given) : environment(std::move(given)) {
    if (environment.control_fd) connect();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (!thread.joinable()) return;
    {
      std::unique_lock lock(mutex);
      all_sent.wait_for(lock, std::chrono::seconds(1), [&] { return !phase_to_send && to_send.empty(); });
      stopping = true;
    }
    wake();
    thread.join();
  }

  void connect() {
    struct stat status = {};
    if (fstat(*environment.control_fd, &status) != 0 || !S_ISSOCK(status.st_mode)) {
      throw Error::usage("environment variable LOCKSTEP_CONTROL_FD={} does not name an open socket. lockstep sets it "
                         "for its workers; to start one by hand, unset it.", *environment.control_fd);
    }
    control = UniqueFd(*environment.control_fd);
    fcntl(control.get(), F_SETFD, FD_CLOEXEC);
    wake_fd = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (wake_fd.get() < 0) throw Error::environment("eventfd: {}", std::strerror(errno));
    // Not left to the thread: whatever happens to the program from here on, it has started.
    if (send_now(control.get(), {MessageType::Hello, ""}) == Sent::FrontIsGone) end_process_group();
    const BlockAllSignals blocked;
    thread = std::thread([this] { serve(); });
  }

  void wake() const {
    const uint64_t one = 1;
    // Can only fail when the counter is full, and then the thread is awake.
    [[maybe_unused]] const ssize_t written = write(wake_fd.get(), &one, sizeof one);
  }

  void serve() {
    Clock::time_point next_beat = Clock::now();
    while (true) {
      if (!send_pending(next_beat)) end_process_group();
      {
        const std::lock_guard lock(mutex);
        if (stopping) return;
      }
      pollfd fds[] = {{control.get(), POLLIN, 0}, {wake_fd.get(), POLLIN, 0}};
      poll(fds, 2, static_cast<int>(Deadline::at(next_beat).remaining().count()));
      if (fds[0].revents != 0 && !front_is_alive()) end_process_group();
      if (fds[1].revents != 0) {
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t got = read(wake_fd.get(), &count, sizeof count);
      }
    }
  }

  /// False when the front program is gone.
  bool send_pending(Clock::time_point& next_beat) {
    const std::lock_guard lock(mutex);
    Sent sent = Sent::Yes;
    while (!to_send.empty() && sent == Sent::Yes) {
      sent = send_now(control.get(), to_send.front());
      if (sent == Sent::Yes) to_send.erase(to_send.begin());
    }
    if (phase_to_send && sent == Sent::Yes) {
      sent = send_now(control.get(), {MessageType::Phase, *phase_to_send});
      if (sent == Sent::Yes) phase_to_send.reset();
    }
    if (Clock::now() >= next_beat) {
      if (sent == Sent::Yes) sent = send_now(control.get(), {MessageType::Beat, ""});
      next_beat = Clock::now() + kBeatPeriod;
    }
    if (!phase_to_send && to_send.empty()) all_sent.notify_all();
    return sent != Sent::FrontIsGone;
  }

  /// The front program never writes, so what can be read is the end of the connection.
  bool front_is_alive() const {
    char byte = 0;
    const ssize_t got = recv(control.get(), &byte, 1, MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
  }

  void push(Message message) {
    {
      const std::lock_guard lock(mutex);
      to_send.push_back(std::move(message));
    }
    wake();
  }

  const WorkerEnvironment environment;
  UniqueFd control;
  UniqueFd wake_fd;
  std::mutex mutex;  ///< guards everything below but the thread
  std::condition_variable all_sent;
  std::string current_phase;
  std::optional<std::string> phase_to_send;  ///< a phase that was not sent yet gives way to the next one
  std::vector<Message> to_send;
  bool has_failed = false;
  bool stopping = false;
  std::thread thread;  ///< owned here; runs serve()
};

WorkerLink WorkerLink::from_environment() { return WorkerLink(parse_worker_environment(current_environment())); }
WorkerLink::WorkerLink(WorkerEnvironment environment) : impl_(std::make_unique<Impl>(std::move(environment))) {}
WorkerLink::WorkerLink(WorkerLink&&) noexcept = default;
WorkerLink& WorkerLink::operator=(WorkerLink&&) noexcept = default;
WorkerLink::~WorkerLink() = default;

const WorkerEnvironment& WorkerLink::environment() const { return impl_->environment; }
bool WorkerLink::connected() const { return impl_->thread.joinable(); }

void WorkerLink::phase(std::string_view text) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->current_phase = text;
    if (!connected()) return;
    impl_->phase_to_send = text;
  }
  impl_->wake();
}

void WorkerLink::done(std::string_view text) {
  if (connected()) impl_->push({MessageType::Done, std::string(text)});
}

void WorkerLink::fail(const Error& error) {
  ErrorRecord record{.kind = error.kind(), .message = error.what(), .world_rank = world_rank(), .pid = getpid(),
                     .time = unix_seconds()};
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->has_failed) return;
    impl_->has_failed = true;
    record.phase = impl_->current_phase;
  }
  bool recorded = false;
  if (const auto& folder = environment().run_folder) {
    try {
      write_error_record(*folder, record);
      recorded = true;
    } catch (const std::exception& problem) {
      std::fprintf(stderr, "the error record could not be written: %s\n", problem.what());
    }
  }
  if (!recorded) std::fprintf(stderr, "error: %s\n", record.message.c_str());
  if (connected()) impl_->push({MessageType::Failed, ""});
}

}  // namespace lockstep::launch
