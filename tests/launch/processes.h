#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/files.h"
#include "lockstep/launch/group.h"

#include <functional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// Longer than any step takes on an overloaded machine; a test that works never waits for it.
inline constexpr Milliseconds kPatience{30'000};

/// A group of test workers run inside the test, with its output in files of a folder of its own.
class GroupRun {
 public:
  explicit GroupRun(int num_workers, std::vector<std::string> args);

  GroupRun& run();

  /// A file in the run folder, for actions that take a path.
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }

  GroupSpec spec;
  GroupResult result;
  std::string out;
  std::string err;

 private:
  TempFolder folder_{"launch-test"};
};

/// The front program as a process of its own.
class FrontProcess {
 public:
  /// Standard output and error go to out() and err(). `prepare` runs in the child before exec.
  FrontProcess(int num_workers, const std::vector<std::string>& args, const std::function<void()>& prepare = [] {});
  FrontProcess(const FrontProcess&) = delete;
  FrontProcess& operator=(const FrontProcess&) = delete;
  ~FrontProcess();

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// The exit code, 128 + signal if it was killed, or -1 if it runs on after kPatience.
  int wait();
  std::string out() const { return read_file(folder_.path() / "out"); }
  std::string err() const { return read_file(folder_.path() / "err"); }

 private:
  TempFolder folder_{"launch-test"};
  pid_t pid_ = -1;
};

/// False when `holds` stays false for kPatience.
bool eventually(const std::function<bool()>& holds);
/// The number in a file that appears within kPatience; -1 if it does not.
pid_t await_pid(const std::string& path);
/// True when no such process runs (one that only waits to be reaped does not).
bool is_gone(pid_t pid);

}  // namespace lockstep::launch
