#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/launch/worker_link.h"
#include "lockstep/recipes/replay_cli.h"
#include "lockstep/train/options.h"
#include "lockstep/train/update.h"

#include <string>

namespace lockstep::recipes {

/// Collective. Puts `trainer`, ready for its first update, where the newest complete checkpoint before the request's update
/// was (or leaves it at the beginning), computes up to that update and compares, each time, the hash of every block with
/// what the run logged; at a checkpoint in between or at the end also all that it holds. Changes nothing in the run's folder,
/// which may be in use. `run_json`: the record that this run would write. Rank 0 chooses; the others follow.
///
/// Returns with the last line given to `link`. On the first difference rank 0 throws Error{OtherBits} and the others return.
/// Throws Error{Usage} when what defines the run is not as it was, Error{Data} for a checkpoint that is damaged or was removed
/// meanwhile, and what run_update() throws.
void run_replay(const ReplayRequest& request, const std::string& run_json, const train::TrainOptions& options,
                train::Trainer& trainer, comm::Communicator& comm, ThreadTeam& team, launch::WorkerLink& link);

}  // namespace lockstep::recipes
