#pragma once

#include "lockstep/base/grain_team.h"
#include "lockstep/base/thread_team.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace lockstep::train {

/// How a process's threads compute its grains: one grain per thread, or `grain_threads` parts of each by a team.
/// A team has fewer threads than parts where the process has no more; the bits depend on the parts at most.
class GrainTeams {
 public:
  /// Keeps a reference to `threads`, which serves alone when grain_threads is 1.
  GrainTeams(ThreadTeam& threads, int grain_threads);
  GrainTeams(const GrainTeams&) = delete;
  GrainTeams& operator=(const GrainTeams&) = delete;
  ~GrainTeams();

  /// Grains that are under way together.
  int at_once() const;
  /// As ThreadTeam::run; inside, GrainTeam::of_this_thread() is the grain's team.
  void run(size_t num_grains, const std::function<void(size_t grain)>& work);

 private:
  ThreadTeam& threads_;
  std::unique_ptr<ThreadTeam> leaders_;
  std::vector<std::unique_ptr<GrainTeam>> teams_;  ///< one per leader
};

}  // namespace lockstep::train
