#pragma once

#include "launch/processes.h"

#include <functional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// `lockstep run` as a process of its own, in a folder of its own that is also its TMPDIR. Killed when it is destroyed
/// early.
class RunProcess {
 public:
  struct Setting {
    EnvironmentPairs environment = {};  ///< on top of the test's
    std::string program_name = {};      ///< argv[0], a symbolic link; empty: lockstep, with "run" before the words
    std::function<void()> prepare = [] {};  ///< in the child before exec
    bool out_and_err_are_one = false;
    std::string standard_input = {};    ///< a file
  };
  explicit RunProcess(const std::vector<std::string>& words) : RunProcess(words, Setting()) {}
  RunProcess(const std::vector<std::string>& words, const Setting& setting);
  RunProcess(const RunProcess&) = delete;
  RunProcess& operator=(const RunProcess&) = delete;
  ~RunProcess();

  void start();
  void signal(int number) const;
  /// The exit code, 128 + signal if it was killed, or -1 if it runs on after kPatience.
  int wait();
  pid_t pid() const { return pid_; }

  std::string out() const { return read_file(file("stdout")); }
  std::string err() const { return read_file(file("stderr")); }
  /// A path in the process's folder, $TMPDIR for its workers.
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }
  bool has(const std::string& name) const { return fs::exists(folder_.path() / name); }
  /// Paths of the files below the folder whose name is `name`, sorted.
  std::vector<std::string> files_called(const std::string& name) const;
  /// Log folders that are still there.
  int num_log_folders() const;

 private:
  TempFolder folder_{"launch-test"};
  std::vector<std::string> words_;
  Setting setting_;
  pid_t pid_ = -1;
};

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Words for workers that are shell scripts.
std::vector<std::string> shell_run(std::vector<std::string> flags, const std::string& script);

}  // namespace lockstep::launch
