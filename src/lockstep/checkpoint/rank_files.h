#pragma once

#include "lockstep/checkpoint/disk.h"
#include "lockstep/checkpoint/manifest.h"
#include "lockstep/checkpoint/model_folder.h"
#include "lockstep/checkpoint/weight_files.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

/// The state that is the float32 copy of a weight.
inline constexpr const char* kMaster = "master";

/// Elements of a named state that this rank owns, where they live. The logical tensor is flat here: of a weight's state it
/// has the weight's elements; an optimizer may keep states of other sizes under the weight's name.
struct LiveSlice {
  std::string param;             ///< a parameter's name
  std::string state;             ///< kMaster, or the optimizer's name of it without a dot, e.g. "exp_avg"
  int64_t begin = 0, end = 0;    ///< of the logical tensor; of a master, begin is a multiple of kPieceElements
  int64_t numel = 0;             ///< of the whole logical tensor
  const float* values = nullptr; ///< end - begin of them
};

/// What one rank gives to a checkpoint. Each (param, state) appears at most once per rank; over all ranks the slices of a
/// logical tensor cover it without overlap. `weights`, `optimizer`, `max_shard_bytes` and `update` are the same on all ranks.
struct CheckpointJob {
  int64_t update = 0;                   ///< updates done; the folder is checkpoint-<update>
  std::vector<TensorPlan> weights;      ///< weight_plans(layout, dtype of the model's files)
  std::vector<LiveSlice> slices;        ///< read until wait() returned; must not change before
  bool optimizer = true;                ///< false: the model alone (--save_only_model)
  std::vector<SmallFile> files;         ///< of rank 0: config.json, tokenizer, trainer_state.json, run.json ...
  int64_t max_shard_bytes = kMaxShardBytes;
};

struct RankShare {
  int rank = 0, world_size = 1;
};

/// Writes this rank's share of `job` into `folder`, which exists: the weights' pieces into the model's files (rounded to the
/// stored dtype, nearest even), all else of the state into optimizer/part-R-of-W.safetensors, one tensor
/// "<param>.<state>" per slice with "<begin> <end> <numel>" as its metadata; masters only where the model's files are not in
/// float32. Rank 0 also writes the heads and `job.files`. All is fsynced on return; `released` is called when the live
/// state has been read to the end. `written` counts bytes. Needs 2 MiB, whatever the size.
/// Throws Error{Environment} naming file, operation and the system's words; Error{NonFinite} for a weight that is NaN or
/// infinite as stored.
std::vector<ManifestFile> write_rank_files(const CheckpointJob& job, const fs::path& folder, RankShare share, Disk& disk,
                                           const std::stop_token& stop, const std::function<void()>& released,
                                           std::atomic<int64_t>& written);

}  // namespace lockstep::checkpoint
