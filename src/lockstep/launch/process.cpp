#include "lockstep/launch/process.h"

#include "lockstep/base/error.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

namespace lockstep::launch {

namespace {

constexpr int kFirstFreeFd = kWorkerControlFd + 1;

/// Moves a descriptor above those the child assigns, so that no dup2 there hits one still needed.
UniqueFd out_of_the_way(int fd) {
  const UniqueFd low(fd);
  UniqueFd high(fcntl(fd, F_DUPFD_CLOEXEC, kFirstFreeFd));
  if (high.get() < 0) throw Error::environment("a descriptor for a worker: {} (see ulimit -n)", std::strerror(errno));
  return high;
}

using Ends = std::pair<UniqueFd, UniqueFd>;

Ends make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw Error::environment("a pipe for a worker: {} (see ulimit -n)", std::strerror(errno));
  }
  UniqueFd second(ends[1]);  // until it is moved, should moving the first one fail
  UniqueFd reading = out_of_the_way(ends[0]);
  return {std::move(reading), out_of_the_way(second.release())};
}

Ends make_control_pair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error::environment("a control socket for a worker: {} (see ulimit -n)", std::strerror(errno));
  }
  UniqueFd second(ends[1]);
  UniqueFd ours = out_of_the_way(ends[0]);
  return {std::move(ours), out_of_the_way(second.release())};
}

/// This process's end and the child's, for one stream.
Ends make_stream(StreamTarget target) {
  switch (target) {
    case StreamTarget::Pipe: return make_pipe();
    case StreamTarget::Null: return {UniqueFd(), out_of_the_way(open("/dev/null", O_RDWR | O_CLOEXEC))};
    case StreamTarget::Inherit: break;
  }
  return Ends();
}

void set_non_blocking(int fd) {
  if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/// Everything the child needs, laid out before it exists: it shares this process's memory and may only make system
/// calls. What goes wrong comes back in `problem`.
struct ChildPlan {
  char* const* argv;
  char* const* envp;
  std::array<int, 4> fds;  ///< what becomes 0, 1, 2 and kWorkerControlFd; -1: left as it is (3: absent)
  pid_t parent;
  sigset_t signal_mask;
  long max_fds;
  const rlimit* open_files;
  int problem;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_IN_BORROWED_MEMORY __attribute__((no_sanitize("address", "thread", "undefined")))
#else
#define LOCKSTEP_IN_BORROWED_MEMORY
#endif

/// For kernels without close_range(): the limit may be a million, and so many calls take long.
long end_of_descriptors() {
  constexpr unsigned kNone = ~0U;
  if (syscall(SYS_close_range, kNone, kNone, 0U) == 0) return 0;
  long end = 0;
  std::error_code problem;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd", problem)) {
    end = std::max(end, std::atol(entry.path().filename().c_str()) + 1);
  }
  return end > 0 ? end : sysconf(_SC_OPEN_MAX);
}

LOCKSTEP_IN_BORROWED_MEMORY void close_from(int first, long max_fds) {
  if (syscall(SYS_close_range, first, ~0U, 0U) == 0) return;
  for (int fd = first; fd < max_fds; ++fd) close(fd);  // kernels before 5.9
}

/// A handler of this process must not run in a child that shares its memory.
LOCKSTEP_IN_BORROWED_MEMORY void drop_signal_handlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action;
    if (sigaction(signal, nullptr, &action) != 0) continue;
    if (action.sa_handler == SIG_IGN || action.sa_handler == SIG_DFL) continue;
    action.sa_handler = SIG_DFL;
    action.sa_flags = 0;
    sigaction(signal, &action, nullptr);
  }
}

LOCKSTEP_IN_BORROWED_MEMORY int run_child(void* argument) {
  ChildPlan& plan = *static_cast<ChildPlan*>(argument);
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(128 + SIGKILL);  // it died before the line above took effect
  bool placed = true;
  int first_free = 3;
  for (int fd = 0; fd < static_cast<int>(plan.fds.size()); ++fd) {
    const int from = plan.fds[static_cast<size_t>(fd)];
    if (from < 0) continue;
    placed = placed && dup2(from, fd) >= 0;
    if (fd == kWorkerControlFd) first_free = kWorkerControlFd + 1;
  }
  if (placed) {
    close_from(first_free, plan.max_fds);
    drop_signal_handlers();
    sigprocmask(SIG_SETMASK, &plan.signal_mask, nullptr);
    if (plan.open_files != nullptr) setrlimit(RLIMIT_NOFILE, plan.open_files);
    execve(plan.argv[0], plan.argv, plan.envp);
  }
  plan.problem = errno;
  _exit(127);
}

/// Runs the child until it has become the program or failed. Returns its pid, or -1 with errno.
pid_t clone_child(ChildPlan& plan) {
  alignas(64) static std::array<char, 64 * 1024> stack;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const pid_t pid = clone(run_child, stack.data() + stack.size(), CLONE_VM | CLONE_VFORK | SIGCHLD, &plan);
  const int problem = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = problem;
  return pid;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

/// What the first line of a script names after "#!"; empty when the file is no script. The kernel reads as much of it.
std::string interpreter_of(const std::string& program) {
  std::array<char, 256> buffer = {};
  std::ifstream file(program, std::ios::binary);
  file.read(buffer.data(), buffer.size());
  std::string_view line(buffer.data(), static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  if (!line.starts_with("#!")) return {};
  line = line.substr(2, line.find('\n') == std::string_view::npos ? line.npos : line.find('\n') - 2);
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  return std::string(line.substr(0, line.find_first_of(" \t")));
}

/// Why the system says that a file that is there is not there, or may not be executed.
std::string missing_interpreter(const std::string& program) {
  if (access(program.c_str(), F_OK) != 0) return {};
  std::string interpreter = interpreter_of(program);
  if (interpreter.empty()) {
    return ". The file is there; the loader it was linked for is not (readelf -l shows it): was it built for another system?";
  }
  if (interpreter.back() == '\r') {
    interpreter.pop_back();
    return fmt::format(". Its first line ends in a carriage return, as in files from Windows, which makes the name of its "
                       "interpreter {} wrong. Remove them: sed -i 's/\\r$//' {}", interpreter, program);
  }
  if (access(interpreter.c_str(), X_OK) == 0) return {};
  return fmt::format(". Its first line names the interpreter {}, which {}. Correct that line, or install the interpreter.",
                     interpreter, access(interpreter.c_str(), F_OK) == 0 ? "may not be executed" : "does not exist");
}

std::string remedy(int problem, const std::string& program) {
  switch (problem) {
    case ENOENT:
    case ENOTDIR:
    case EACCES: return missing_interpreter(program);
    case ENOEXEC: return ". Is it a script whose first line does not name its interpreter (#!)?";
    case E2BIG: return ". Its arguments and the environment are together too long.";
    case EAGAIN:
    case ENOMEM: return " (see ulimit -u and the memory of the machine)";
    default: return {};
  }
}

}  // namespace

WorkerProcess start_process(const ProcessPlan& plan) {
  std::vector<std::string> arg_texts = plan.argv;
  std::vector<std::string> env_texts;
  env_texts.reserve(plan.environment.size());
  for (const auto& [name, value] : plan.environment) env_texts.push_back(name + "=" + value);
  const std::vector<char*> argv = pointers(arg_texts);
  const std::vector<char*> envp = pointers(env_texts);

  const Ends in = make_stream(plan.in);
  Ends out = make_stream(plan.out);
  Ends err = make_stream(plan.err);
  Ends control;
  if (plan.has_control) control = make_control_pair();
  ChildPlan child = {.argv = argv.data(), .envp = envp.data(),
                     .fds = {in.second.get(), out.second.get(), err.second.get(), control.second.get()},
                     .parent = getpid(), .signal_mask = plan.signal_mask, .max_fds = end_of_descriptors(),
                     .open_files = plan.open_files ? &*plan.open_files : nullptr, .problem = 0};
  const pid_t pid = clone_child(child);
  if (pid < 0) throw Error::environment("a process for a worker: {} (see ulimit -u)", std::strerror(errno));
  if (child.problem != 0) {
    waitpid(pid, nullptr, 0);
    throw Error::environment("the program {} cannot be started: {}{}", arg_texts[0], std::strerror(child.problem),
                             remedy(child.problem, arg_texts[0]));
  }
  for (const UniqueFd* fd : {&out.first, &err.first, &control.first}) set_non_blocking(fd->get());
  return {.pid = pid, .out = std::move(out.first), .err = std::move(err.first), .control = std::move(control.first)};
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

namespace {

char state_in(const std::string& stat_file) {
  std::ifstream file(stat_file);
  std::string text;
  std::getline(file, text, '\0');
  // "pid (name) state ...": the name may hold anything, so look from the right.
  const size_t name_end = text.rfind(") ");
  return name_end != std::string::npos && name_end + 2 < text.size() ? text[name_end + 2] : '?';
}

}  // namespace

char process_state(pid_t pid) { return state_in(fmt::format("/proc/{}/stat", pid)); }

bool has_runnable_thread(pid_t pid) {
  std::error_code ignored;  // a process that ends takes its folder along
  for (std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", pid), ignored), end; thread != end;
       thread.increment(ignored)) {
    if (state_in(thread->path().string() + "/stat") == 'R') return true;
    if (ignored) break;
  }
  return false;
}

void keep_standard_descriptors_open() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    const int opened = open("/dev/null", O_RDWR);
    if (opened >= 0 && opened != fd) {
      dup2(opened, fd);
      close(opened);
    }
  }
}

}  // namespace lockstep::launch
