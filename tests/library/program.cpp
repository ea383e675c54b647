#include "program.h"

#include "lockstep/base/error.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::library_test {
namespace {

constexpr int kDeadlineMs = 60'000;
std::atomic<int> num_started = 0;

std::vector<char*> as_pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::string own_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(name) + "=" + value;
}

}  // namespace

Program::Program(const fs::path& scratch, const std::vector<std::string>& words, const Variables& variables) {
  const int number = ++num_started;
  out_ = scratch / fmt::format("out-{}.txt", number);
  err_ = scratch / fmt::format("err-{}.txt", number);
  std::vector<std::string> arguments = words;
  std::vector<std::string> environment = {own_variable("PATH"), "HOME=" + scratch.string(), "TMPDIR=" + scratch.string()};
  for (const auto& [name, value] : variables) environment.push_back(name + "=" + value);
  const std::vector<char*> argv = as_pointers(arguments), envp = as_pointers(environment);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_addchdir_np(&actions, scratch.c_str());
  const int problem = posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&actions);
  LS_CHECK(problem == 0, "{}: {}", words.front(), problem);
}

Program::~Program() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

ProgramEnded Program::wait() {
  const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid_, 0)));
  pollfd ended{pidfd.get(), POLLIN, 0};
  int result = 0;
  while ((result = poll(&ended, 1, kDeadlineMs)) < 0 && errno == EINTR) continue;
  if (result == 0) kill(pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  ProgramEnded done;
  done.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  done.out = read_file(out_);
  done.err = read_file(err_);
  return done;
}

ProgramEnded run(const fs::path& scratch, const std::vector<std::string>& words, const Variables& variables) {
  return Program(scratch, words, variables).wait();
}

int free_port() {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  LS_CHECK(::bind(fd.get(), plain, size) == 0 && ::getsockname(fd.get(), plain, &size) == 0, "errno {}", errno);
  return ntohs(address.sin_port);
}

}  // namespace lockstep::library_test
