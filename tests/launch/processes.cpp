#include "launch/processes.h"

#include "lockstep/launch/process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

namespace lockstep::launch {

namespace {

UniqueFd create(const fs::path& path) {
  return UniqueFd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
}

}  // namespace

GroupRun::GroupRun(int num_workers, std::vector<std::string> args) {
  spec.command = TEST_WORKER;
  spec.args = std::move(args);
  spec.num_workers = num_workers;
  spec.run_folder = folder_.path();
}

GroupRun& GroupRun::run() {
  const UniqueFd out_fd = create(file("out"));
  const UniqueFd err_fd = create(file("err"));
  result = run_group(spec, {.out_fd = out_fd.get(), .err_fd = err_fd.get()});
  out = read_file(file("out"));
  err = read_file(file("err"));
  return *this;
}

FrontProcess::FrontProcess(int num_workers, const std::vector<std::string>& args,
                           const std::function<void()>& prepare) {
  const UniqueFd out_fd = create(folder_.path() / "out");
  const UniqueFd err_fd = create(folder_.path() / "err");
  std::vector<std::string> texts = {TEST_FRONT, folder_.path().string(), std::to_string(num_workers), TEST_WORKER};
  texts.insert(texts.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  dup2(out_fd.get(), 1);
  dup2(err_fd.get(), 2);
  prepare();
  execv(argv[0], argv.data());
  _exit(127);
}

FrontProcess::~FrontProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void FrontProcess::signal(int number) const { kill(pid_, number); }

int FrontProcess::wait() {
  int status = 0;
  if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

bool eventually(const std::function<bool()>& holds) {
  const Deadline deadline = Deadline::in(kPatience);
  while (!holds()) {
    if (deadline.passed()) return false;
    std::this_thread::sleep_for(Milliseconds(2));
  }
  return true;
}

pid_t await_pid(const std::string& path) {
  pid_t pid = -1;
  eventually([&] { return static_cast<bool>(std::ifstream(path) >> pid); });
  return pid;
}

bool is_gone(pid_t pid) {
  const char state = process_state(pid);
  return state == '?' || state == 'Z' || state == 'X';
}

}  // namespace lockstep::launch
