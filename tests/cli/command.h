#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/files.h"

#include <string>
#include <vector>

#include <sys/types.h>

/// The built `lockstep` as a user starts it, in a folder of its own.
namespace lockstep::cli {

inline const fs::path kTestData = LOCKSTEP_TEST_DATA;
inline const fs::path kTinyModels = kTestData / "models" / "tiny";
inline const fs::path kChats = kTestData / "gsm8k" / "chats-96.jsonl";

struct Ended {
  int exit_code = -1;       ///< 128 + signal when killed by one; -1: it was still running at the deadline
  std::string out, err;
};

/// An empty folder for one test, removed at the end. Commands get its `tmp` as TMPDIR, so that what they leave behind
/// is seen.
class Scratch {
 public:
  Scratch();
  const fs::path& path() const { return folder_.path(); }
  fs::path operator/(const std::string& name) const { return folder_.path() / name; }
  /// Writes a file and returns its path.
  fs::path write(const std::string& name, const std::string& text) const;

  /// What a command left behind that it should not: unfinished files or folders, scratch space, processes. Empty when
  /// there is nothing. `output` may hold a log, but no part of a model.
  std::string leftovers() const;
  std::string leftovers_of_failed_run(const fs::path& output) const;

 private:
  TempFolder folder_;
};

/// A running `lockstep`. Killed when it is destroyed early.
class Command {
 public:
  /// `folder`: where it is started; empty: where the test is. `program`: empty: the one that was built.
  Command(const Scratch& scratch, const std::vector<std::string>& args, const fs::path& folder = {},
          const fs::path& program = {});
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;
  ~Command();

  void signal(int number) const;
  /// Of its children, in order of their start.
  std::vector<pid_t> workers() const;
  /// Waits until metrics.jsonl in `output` has a line. False when the command ended or the deadline came first.
  bool wait_for_first_update(const fs::path& output);
  Ended wait(Milliseconds deadline = std::chrono::seconds(60));

 private:
  bool ended();
  pid_t pid_ = -1;
  int status_ = 0;
  bool running_ = true;
  fs::path out_, err_;
};

Ended run(const Scratch& scratch, const std::vector<std::string>& args, const fs::path& folder = {});

/// `sft` on the tiny llama and 96 chats cut at 64 tokens, 2 updates, into scratch/out; `more` comes last and so wins.
std::vector<std::string> sft_args(const Scratch& scratch, const std::vector<std::string>& more = {});

/// Of a run that was asked to stop: exit code 75, the words that continue it, and a complete checkpoint in `output`.
void expect_stopped_with_a_checkpoint(const Ended& ended, const fs::path& output);

/// The lines of a file, or none when it is absent.
std::vector<std::string> lines_of(const fs::path& file);

}  // namespace lockstep::cli
