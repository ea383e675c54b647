#include "command.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::cli {
namespace {

constexpr Milliseconds kLook{5};

/// In the child, after fork: only calls that are safe there.
[[noreturn]] void become(char* const* argv, char* const* envp, const char* folder, const char* out, const char* err) {
  const int out_fd = open(out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int err_fd = open(err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  if (chdir(folder) != 0) _exit(126);
  dup2(out_fd, STDOUT_FILENO);
  dup2(err_fd, STDERR_FILENO);
  execve(argv[0], argv, envp);
  _exit(127);
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::vector<std::string> environment_with(const std::string& setting) {
  std::vector<std::string> result;
  const std::string name = setting.substr(0, setting.find('=') + 1);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(name)) result.emplace_back(*entry);
  }
  result.push_back(setting);
  return result;
}

/// Processes whose command line names something in `folder`.
std::string processes_in(const fs::path& folder) {
  std::string found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    std::string line;  // words end in NUL bytes; there is no newline
    std::getline(file, line);
    if (line.find(folder.string()) != std::string::npos) found += entry.path().filename().string() + " ";
  }
  return found;
}

}  // namespace

Scratch::Scratch() : folder_("lockstep-cli") { fs::create_directory(folder_.path() / "tmp"); }

fs::path Scratch::write(const std::string& name, const std::string& text) const {
  std::ofstream(path() / name, std::ios::binary) << text;
  return path() / name;
}

std::string Scratch::leftovers() const {
  std::string found;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(path())) {
    const std::string name = entry.path().filename().string();
    if (name.find(".tmp-") != std::string::npos) found += entry.path().string() + " ";
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path() / "tmp")) found += entry.path().string() + " ";
  const std::string processes = processes_in(path());
  if (!processes.empty()) found += "processes " + processes;
  return found;
}

std::string Scratch::leftovers_of_failed_run(const fs::path& output) const {
  std::string found = leftovers();
  for (const char* name : {"model.safetensors", "config.json", "tokenizer.json", "train_results.json"}) {
    if (fs::exists(output / name)) found += (output / name).string() + " ";
  }
  return found;
}

Command::Command(const Scratch& scratch, const std::vector<std::string>& args, const fs::path& folder,
                 const fs::path& program)
    : out_(scratch / "stdout.txt"), err_(scratch / "stderr.txt") {
  std::vector<std::string> words = {(program.empty() ? fs::path(LOCKSTEP_BIN_DIR) / "lockstep" : program).string()};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<std::string> environment = environment_with("TMPDIR=" + (scratch / "tmp").string());
  const std::vector<char*> argv = pointers(words);
  const std::vector<char*> envp = pointers(environment);
  const std::string place = folder.empty() ? "." : folder.string();
  pid_ = fork();
  if (pid_ == 0) become(argv.data(), envp.data(), place.c_str(), out_.c_str(), err_.c_str());
  LS_CHECK(pid_ > 0, "fork: {}", errno);
}

Command::~Command() {
  if (!running_) return;
  // Workers end with the front program.
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Command::signal(int number) const { kill(pid_, number); }

std::vector<pid_t> Command::workers() const {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", pid_));
  std::vector<pid_t> pids;
  for (pid_t pid = 0; file >> pid;) pids.push_back(pid);
  return pids;
}

bool Command::ended() {
  if (running_ && waitpid(pid_, &status_, WNOHANG) == pid_) running_ = false;
  return !running_;
}

bool Command::wait_for_first_update(const fs::path& output) {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
  while (lines_of(output / "metrics.jsonl").empty()) {
    if (ended() || Clock::now() > end) return false;
    std::this_thread::sleep_for(kLook);
  }
  return true;
}

Ended Command::wait(Milliseconds deadline) {
  const Clock::time_point end = Clock::now() + deadline;
  while (!ended() && Clock::now() < end) std::this_thread::sleep_for(kLook);
  Ended result;
  if (!running_) result.exit_code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  result.out = read_file(out_);
  result.err = read_file(err_);
  return result;
}

Ended run(const Scratch& scratch, const std::vector<std::string>& args, const fs::path& folder) {
  return Command(scratch, args, folder).wait();
}

std::vector<std::string> sft_args(const Scratch& scratch, const std::vector<std::string>& more) {
  std::vector<std::string> args = {"sft", "--model_name_or_path", (kTinyModels / "llama").string(),
                                   "--dataset_name", kChats.string(), "--output_dir", (scratch / "out").string(),
                                   "--max_length", "64", "--max_steps", "2"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

void expect_stopped_with_a_checkpoint(const Ended& ended, const fs::path& output) {
  EXPECT_EQ(ended.exit_code, 75) << ended.err;
  EXPECT_NE(ended.err.find("--resume_from_checkpoint last"), std::string::npos) << ended.err;
  const auto found = std::find_if(fs::directory_iterator(output), fs::directory_iterator(), [](const auto& entry) {
    return entry.path().filename().string().starts_with("checkpoint-") && fs::exists(entry.path() / "manifest.json");
  });
  EXPECT_NE(found, fs::directory_iterator()) << "no complete checkpoint in " << output;
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream stream(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace lockstep::cli
