#pragma once

#include "lockstep/base/files.h"

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

/// A program as a user starts it, with an environment of its own: PATH, HOME and what is given.
namespace lockstep::library_test {

struct ProgramEnded {
  int exit_code = -1;                   ///< 128 + signal when killed by one, as at the deadline
  std::string out, err;
};

using Variables = std::map<std::string, std::string>;

class Program {
 public:
  /// `scratch`: for its output, and its current folder.
  Program(const fs::path& scratch, const std::vector<std::string>& words, const Variables& variables = {});
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program();
  /// Until wait().
  pid_t pid() const { return pid_; }
  /// Killed after a minute.
  ProgramEnded wait();

 private:
  fs::path out_, err_;
  pid_t pid_ = -1;
};

ProgramEnded run(const fs::path& scratch, const std::vector<std::string>& words, const Variables& variables = {});

/// A TCP port that was free just now.
int free_port();

}  // namespace lockstep::library_test
