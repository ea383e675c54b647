#pragma once

#include "lockstep/base/files.h"
#include "lockstep/comm/communicator.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <exception>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

/// Ranks as processes: forked before anything of libtorch has started a thread.
namespace lockstep::comm {

inline GlooOptions options_for(const TempFolder& folder, int rank, int size) {
  GlooOptions options;
  options.rank = rank;
  options.size = size;
  options.store_file = (folder.path() / "store").string();
  options.join_timeout = Milliseconds(30'000);
  options.timeout = Milliseconds(30'000);
  return options;
}

/// Exit code of each forked rank: 0 when `work` returned and no expectation failed. `meanwhile` runs in this process.
inline std::vector<int> fork_ranks(int size, const std::function<void(int rank)>& work,
                                   const std::function<void(const std::vector<pid_t>&)>& meanwhile = {}) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();
    if (pid == 0) {
      int code = 0;
      try {
        work(rank);
      } catch (const std::exception& problem) {
        fprintf(stderr, "rank %d: %s\n", rank, problem.what());
        code = 9;
      }
      _exit(code != 0 ? code : (testing::Test::HasFailure() ? 8 : 0));
    }
    pids.push_back(pid);
  }
  if (meanwhile) meanwhile(pids);
  std::vector<int> codes;
  for (const pid_t pid : pids) {
    int status = 0;
    waitpid(pid, &status, 0);
    codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return codes;
}

}  // namespace lockstep::comm
