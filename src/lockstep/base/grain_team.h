#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

/// Threads that share the work of one grain, where a machine has more cores than an update has grains. Kernels split their
/// rows in parts; where they are cut is a matter of their number and of parts(), never of the threads that happen to be there.
namespace lockstep {

class GrainTeam {
 public:
  /// `parts` >= 1 share the work, and 1 <= `threads` <= `parts` do it; the caller of run() is one of them.
  GrainTeam(int parts, int threads);
  GrainTeam(const GrainTeam&) = delete;
  GrainTeam& operator=(const GrainTeam&) = delete;
  ~GrainTeam();

  int parts() const { return parts_; }
  /// Calls work(part) once for each of 0..parts-1 and returns when all have ended; the first part's exception is rethrown.
  /// Threads spin for some microseconds before they sleep, as kernels follow each other closely. Inside, of_this_thread() is null.
  void run(const std::function<void(int part)>& work);

  /// The team of the grain that this thread computes, or null.
  static GrainTeam* of_this_thread();

 private:
  friend class GrainTeamScope;
  struct Impl;
  int parts_;
  std::unique_ptr<Impl> impl_;
};

/// Makes `team` (null: none) the one of this thread while it lives.
class GrainTeamScope {
 public:
  explicit GrainTeamScope(GrainTeam* team);
  ~GrainTeamScope();
  GrainTeamScope(const GrainTeamScope&) = delete;
  GrainTeamScope& operator=(const GrainTeamScope&) = delete;

 private:
  GrainTeam* before_;
};

/// Calls work(begin, end, part) for parts of [0, count) that begin at multiples of `unit`, as even as can be, on the team of
/// this thread; without one, or with too little for two parts, work(0, count, 0) here. Parts may be fewer than the team has.
template <class Work>
void split_grain_work(int64_t count, int64_t unit, const Work& work) {
  GrainTeam* team = GrainTeam::of_this_thread();
  const int64_t units = (count + unit - 1) / unit;
  if (team == nullptr || units < 2) return work(int64_t{0}, count, 0);
  const int64_t parts = std::min<int64_t>(team->parts(), units);
  team->run([&](int part) {
    if (part >= parts) return;
    const int64_t begin = units * part / parts * unit, end = std::min(count, units * (part + 1) / parts * unit);
    work(begin, end, part);
  });
}

}  // namespace lockstep
