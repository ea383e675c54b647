#include "launch/run_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace lockstep::launch {

RunProcess::RunProcess(const std::vector<std::string>& words, const Setting& setting)
    : words_(words), setting_(setting) {
  start();
}

void RunProcess::start() {
  const auto create = [&](const char* name) {
    return UniqueFd(open(file(name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  };
  const UniqueFd out_fd = create("stdout");
  const UniqueFd err_fd = create("stderr");
  const std::string input = setting_.standard_input.empty() ? "/dev/null" : setting_.standard_input;
  std::string program = LOCKSTEP_PROGRAM;
  if (!setting_.program_name.empty()) {
    fs::create_directories(file("bin"));
    program = file("bin/" + setting_.program_name);
    fs::create_symlink(LOCKSTEP_PROGRAM, program);
  }
  std::vector<std::string> texts = {program};
  if (setting_.program_name.empty()) texts.emplace_back("run");
  texts.insert(texts.end(), words_.begin(), words_.end());
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  const UniqueFd in_fd(open(input.c_str(), O_RDONLY | O_CLOEXEC));
  dup2(in_fd.get(), 0);
  dup2(out_fd.get(), 1);
  dup2(setting_.out_and_err_are_one ? out_fd.get() : err_fd.get(), 2);
  for (const char* name : {"OMP_NUM_THREADS", "MASTER_ADDR", "TORCHELASTIC_ERROR_FILE"}) unsetenv(name);
  setenv("TMPDIR", folder_.path().c_str(), 1);
  for (const auto& [name, value] : setting_.environment) setenv(name.c_str(), value.c_str(), 1);
  setting_.prepare();
  execv(argv[0], argv.data());
  _exit(127);
}

RunProcess::~RunProcess() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void RunProcess::signal(int number) const { kill(pid_, number); }

int RunProcess::wait() {
  int status = 0;
  if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::vector<std::string> RunProcess::files_called(const std::string& name) const {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder_.path())) {
    if (entry.path().filename() == name) paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

int RunProcess::num_log_folders() const {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(folder_.path())) {
    count += entry.path().filename().string().starts_with("lockstep_logs_");
  }
  return count;
}

std::vector<std::string> shell_run(std::vector<std::string> flags, const std::string& script) {
  for (const char* word : {"/bin/sh", "-c"}) flags.emplace_back(word);
  flags.push_back(script);
  return flags;
}

}  // namespace lockstep::launch
