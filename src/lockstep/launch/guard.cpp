#include "lockstep/launch/guard.h"

#include "lockstep/base/error.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace lockstep::launch {

namespace {

static_assert(std::atomic<pid_t>::is_always_lock_free, "shared between processes");

/// Descriptor 0 is the pipe; everything else is closed, so that nobody waits for the guard to let go of something.
void keep_only(int fd) {
  if (fd != 0) dup2(fd, 0);
  if (syscall(SYS_close_range, 1, ~0U, 0U) == 0) return;
  const long max_fds = sysconf(_SC_OPEN_MAX);
  for (int other = 1; other < max_fds; ++other) close(other);
}

[[noreturn]] void guard(int fd, std::span<const std::atomic<pid_t>> groups) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, nullptr);
  // Whoever kills the launcher's session or process group means the launcher; the guard then has its work to do.
  setsid();
  // Not of a name that `pkill lockstep` finds: it is there for what follows such a command.
  prctl(PR_SET_NAME, "lstep-guard");
  keep_only(fd);
  char nothing = 0;
  while (read(0, &nothing, 1) < 0 && errno == EINTR) {
  }
  for (const std::atomic<pid_t>& group : groups) {
    if (const pid_t pid = group.load(); pid > 0) kill(-pid, SIGKILL);
  }
  _exit(0);
}

}  // namespace

ProcessGuard::ProcessGuard() {
  constexpr size_t kBytes = kMaxGroups * sizeof(std::atomic<pid_t>);
  void* shared = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw Error::environment("shared memory: {}", std::strerror(errno));
  groups_ = {static_cast<std::atomic<pid_t>*>(shared), kMaxGroups};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw Error::environment("a pipe: {} (see ulimit -n)", std::strerror(errno));
  const UniqueFd reading(ends[0]);
  alive_ = UniqueFd(ends[1]);
  pid_ = fork();
  if (pid_ < 0) throw Error::environment("a process: {} (see ulimit -u)", std::strerror(errno));
  if (pid_ == 0) guard(reading.get(), groups_);
}

ProcessGuard::~ProcessGuard() {
  alive_.reset();
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  munmap(groups_.data(), groups_.size_bytes());
}

void ProcessGuard::replace(pid_t from, pid_t to) {
  for (std::atomic<pid_t>& group : groups_) {
    if (group.load(std::memory_order_relaxed) != from) continue;
    group.store(to);
    return;
  }
}

}  // namespace lockstep::launch
