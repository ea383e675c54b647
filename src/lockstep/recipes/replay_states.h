#pragma once

#include "lockstep/comm/communicator.h"
#include "lockstep/recipes/replay_words.h"
#include "lockstep/train/update.h"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep::recipes {

struct StateComparison {
  std::vector<StateDifference> differences;   ///< in the order of the parameters
  std::string unreadable;                     ///< why the checkpoint could not be read to its end; empty: it could
};

/// Collective. Masters and optimizer states of the trainer against a checkpoint of another or the same number of ranks, bit
/// for bit; what a checkpoint does not hold (--save_only_model) is passed over. The same result on every rank. Never throws for
/// a checkpoint that cannot be read: the run may remove it meanwhile.
StateComparison compare_states(const train::Trainer& trainer, const std::filesystem::path& checkpoint, comm::Communicator& comm);

}  // namespace lockstep::recipes
