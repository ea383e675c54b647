#include "lockstep/launch/process.h"

#include "lockstep/base/error.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

namespace lockstep::launch {

namespace {

constexpr int kChildErrorFd = kWorkerControlFd + 1;
constexpr int kFirstFreeFd = kChildErrorFd + 1;

/// Moves a descriptor above those the child assigns, so that no dup2 there hits one still needed.
UniqueFd out_of_the_way(int fd) {
  const UniqueFd low(fd);
  UniqueFd high(fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeFd));
  if (high.get() < 0) throw Error::environment("a descriptor for a worker: {} (see ulimit -n)", std::strerror(errno));
  return high;
}

std::pair<UniqueFd, UniqueFd> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw Error::environment("a pipe for a worker: {} (see ulimit -n)", std::strerror(errno));
  }
  UniqueFd second(ends[1]);  // until it is moved, should moving the first one fail
  UniqueFd reading = out_of_the_way(ends[0]);
  return {std::move(reading), out_of_the_way(second.release())};
}

std::pair<UniqueFd, UniqueFd> make_control_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error::environment("a control socket for a worker: {} (see ulimit -n)", std::strerror(errno));
  }
  UniqueFd second(ends[1]);
  UniqueFd ours = out_of_the_way(ends[0]);
  return {std::move(ours), out_of_the_way(second.release())};
}

void set_non_blocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/// Everything the child needs, laid out before the fork: after it only async-signal-safe calls are allowed.
struct ChildPlan {
  const char* path;
  char* const* argv;
  char* const* envp;
  int null_fd;
  int out_fd;
  int err_fd;
  int control_fd;
  int error_fd;
  pid_t parent;
  sigset_t signal_mask;
  long max_fds;
};

void close_from(int first, long max_fds) {
  if (syscall(SYS_close_range, first, ~0U, 0U) == 0) return;
  for (int fd = first; fd < max_fds; ++fd) close(fd);  // kernels before 5.9
}

[[noreturn]] void run_child(const ChildPlan& plan) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(128 + SIGKILL);  // it died before the line above took effect
  const bool placed = dup2(plan.null_fd, 0) >= 0 && dup2(plan.out_fd, 1) >= 0 && dup2(plan.err_fd, 2) >= 0 &&
                      dup2(plan.control_fd, kWorkerControlFd) >= 0 &&
                      dup3(plan.error_fd, kChildErrorFd, O_CLOEXEC) >= 0;
  if (placed) {
    close_from(kFirstFreeFd, plan.max_fds);
    sigprocmask(SIG_SETMASK, &plan.signal_mask, nullptr);
    execve(plan.path, plan.argv, plan.envp);
  }
  const int problem = errno;
  [[maybe_unused]] const ssize_t told = write(placed ? kChildErrorFd : plan.error_fd, &problem, sizeof problem);
  _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// 0 once the program runs, else the errno of what failed.
int read_exec_problem(int fd) {
  int problem = 0;
  ssize_t got = 0;
  do {
    got = read(fd, &problem, sizeof problem);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof problem) ? problem : 0;
}

}  // namespace

WorkerProcess start_worker(const fs::path& command, const std::vector<std::string>& args,
                           const Environment& environment, const sigset_t& signal_mask) {
  std::vector<std::string> arg_texts = {command.string()};
  arg_texts.insert(arg_texts.end(), args.begin(), args.end());
  std::vector<std::string> env_texts;
  for (const auto& [name, value] : environment) env_texts.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers(arg_texts);
  const std::vector<char*> envp = pointers(env_texts);

  auto [out_read, out_write] = make_pipe();
  auto [err_read, err_write] = make_pipe();
  auto [error_read, error_write] = make_pipe();
  auto [control_ours, control_theirs] = make_control_pair();
  const UniqueFd null_fd = out_of_the_way(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const ChildPlan plan = {.path = arg_texts[0].c_str(), .argv = argv.data(), .envp = envp.data(),
                          .null_fd = null_fd.get(), .out_fd = out_write.get(), .err_fd = err_write.get(),
                          .control_fd = control_theirs.get(), .error_fd = error_write.get(), .parent = getpid(),
                          .signal_mask = signal_mask, .max_fds = sysconf(_SC_OPEN_MAX)};
  const pid_t pid = fork();
  if (pid == 0) run_child(plan);
  if (pid < 0) throw Error::environment("a process for a worker: {} (see ulimit -u)", std::strerror(errno));

  error_write.reset();
  if (const int problem = read_exec_problem(error_read.get()); problem != 0) {
    waitpid(pid, nullptr, 0);
    throw Error::environment("the worker program {} cannot be started: {}", command.string(), std::strerror(problem));
  }
  for (const UniqueFd* fd : {&out_read, &err_read, &control_ours}) set_non_blocking(fd->get());
  return {.pid = pid, .out = std::move(out_read), .err = std::move(err_read), .control = std::move(control_ours)};
}

std::optional<ExitState> reap_worker(pid_t pid) {
  siginfo_t info = {};
  if (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
    return std::nullopt;
  }
  kill(-pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) return ExitState{.signal = WTERMSIG(status)};
  return ExitState{.exit_status = WEXITSTATUS(status)};
}

char process_state(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text, '\0');
  // "pid (name) state ...": the name may hold anything, so look from the right.
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && name_end + 2 < text.size() ? text[name_end + 2] : '?';
}

}  // namespace lockstep::launch
