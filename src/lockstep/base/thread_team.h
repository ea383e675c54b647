#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace lockstep {

/// A fixed number of threads that run indexed work. One run() at a time; run() is called from outside the team.
class ThreadTeam {
 public:
  /// `num_threads` >= 1. The caller's thread is one of them, so 1 starts none.
  explicit ThreadTeam(int num_threads);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  int size() const;

  /// Calls work(item, thread) for item = 0..num_items-1; each thread takes the next item when free (dynamic).
  /// Returns when all have ended. The first exception (lowest item) is rethrown after the others have stopped
  /// taking new items.
  void run(size_t num_items, const std::function<void(size_t item, int thread)>& work);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Cores this process may use: the affinity mask, cut by the cgroup CPU quota (v1 and v2), at least 1.
int available_cores();

}  // namespace lockstep
