#pragma once

#include "lockstep/recipes/replay_records.h"

#include <cstdint>
#include <string>
#include <vector>

/// What a replay says. Pure; torch-free.
namespace lockstep::recipes {

/// How the updates were computed again.
struct ReplayFacts {
  std::string run;               ///< the folder, as the user names it
  std::string start;             ///< the checkpoint's folder; empty: the beginning of the run
  int64_t start_update = 0;      ///< of the checkpoint
  int num_processes = 1, num_threads = 1;
  bool exact = true;             ///< --reduction exact: the law holds for this run
  std::vector<std::string> other_kernels = {};  ///< which give other bits here than where the run was computed
};

/// "embedding", "layer 0", ..., "head".
std::string block_name(size_t block, size_t num_blocks);
/// "updates 101 to 120", "update 7".
std::string updates_text(int64_t first, int64_t last);

/// "from out/checkpoint-100, 2 processes x 1 thread".
std::string from_where(const ReplayFacts& facts);

/// Before anything is compared: kernels here give other bits than the run's; empty when none does.
std::string other_kernels_text(const ReplayFacts& facts);
/// The weights in the model's folder are not those that the run began with. `blocks` of `num_blocks` differ.
std::string other_weights_text(const ReplayFacts& facts, const std::vector<size_t>& blocks, size_t num_blocks);

/// The last line of a replay that found the logged bits. `without_hashes`: updates between that could not be compared.
std::string same_bits_text(int64_t first, int64_t last, int64_t without_hashes);

/// Which update is the first to differ, in what, what that means and what to try.
std::string other_bits_text(const UpdateRecord& logged, const UpdateRecord& replayed, const UpdateDifference& difference,
                            const ReplayFacts& facts);

/// The checkpoint does not hold the weights that the run logged for its update.
std::string other_start_text(const UpdateRecord& logged, const UpdateRecord& found, const UpdateDifference& difference,
                             const ReplayFacts& facts);

/// A state of a parameter of which a later checkpoint holds other values than the replay arrived at.
struct StateDifference {
  std::string block, param, state;
  int64_t num_different = 0, numel = 0;
};
/// The weights after `update` are those that were logged, but `checkpoint`, taken then, holds something else.
std::string other_checkpoint_text(int64_t update, const std::string& checkpoint,
                                  const std::vector<StateDifference>& differences, const ReplayFacts& facts);

}  // namespace lockstep::recipes
