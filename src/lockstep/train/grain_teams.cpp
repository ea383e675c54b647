#include "lockstep/train/grain_teams.h"

#include "lockstep/base/error.h"

#include <algorithm>

namespace lockstep::train {

GrainTeams::GrainTeams(ThreadTeam& threads, int grain_threads) : threads_(threads) {
  LS_CHECK(grain_threads >= 1, "grain_threads = {}", grain_threads);
  if (grain_threads == 1) return;
  const int per_grain = std::min(grain_threads, threads.size());
  const int leaders = threads.size() / per_grain;
  leaders_ = std::make_unique<ThreadTeam>(leaders);
  for (int leader = 0; leader < leaders; ++leader) teams_.push_back(std::make_unique<GrainTeam>(grain_threads, per_grain));
}

GrainTeams::~GrainTeams() = default;

int GrainTeams::at_once() const { return leaders_ == nullptr ? threads_.size() : leaders_->size(); }

void GrainTeams::run(size_t num_grains, const std::function<void(size_t grain)>& work) {
  if (leaders_ == nullptr) return threads_.run(num_grains, [&](size_t grain, int) { work(grain); });
  leaders_->run(num_grains, [&](size_t grain, int leader) {
    const GrainTeamScope scope(teams_[static_cast<size_t>(leader)].get());
    work(grain);
  });
}

}  // namespace lockstep::train
