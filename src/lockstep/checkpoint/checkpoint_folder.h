#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/checkpoint/disk.h"
#include "lockstep/checkpoint/manifest.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The checkpoints of a run: OUT/checkpoint-<update>, complete when its manifest is there and every file that it names has
/// the size it says. `.checkpoint-<update>.partial` is being written, `.checkpoint-<update>.removing` is being deleted; both
/// are left behind only by a process that was killed.
namespace lockstep::checkpoint {

std::string checkpoint_name(int64_t update);
/// The update of a folder named as above; nothing for other names.
std::optional<int64_t> update_of(std::string_view name);
std::string partial_name(int64_t update);
std::string removing_name(int64_t update);
/// A file by which ranks find out whether they see the same folder.
std::string probe_name(int64_t number);

struct FoundCheckpoint {
  fs::path path;
  int64_t update = 0;
  std::string problem;   ///< empty: complete
};

enum class Verify {
  Sizes,    ///< manifest and sizes: reads nothing else
  Content,  ///< hashes every byte besides
};

/// One of `count` parties that look at a checkpoint's files: those whose place in the manifest is `index` modulo `count`.
struct FileShare {
  int index = 0, count = 1;
};

/// What is wrong with a checkpoint, one sentence each that names the file, what was expected and what was found; empty
/// when it is whole. `team` shares the hashing. Throws Error{Data} only for a manifest that cannot be read.
std::vector<std::string> problems_of(const fs::path& checkpoint, Verify how, ThreadTeam* team = nullptr,
                                     FileShare share = {});

/// Throws Error{Data}.
Manifest read_manifest(const fs::path& checkpoint);

/// Every folder named checkpoint-<number> in `output`, ascending by number; sizes are checked. Empty for no folder.
std::vector<FoundCheckpoint> list_checkpoints(const fs::path& output);

/// What --resume_from_checkpoint asks for: "last" or "true" is the complete one of the highest number in `output`, anything
/// else a path. Sizes are checked. Throws Error{Usage} for what does not exist, with what is there instead, and Error{Data}
/// for a checkpoint that is not complete, with each of its problems. `passed_over` gets what "last" left out, and why.
/// `belongs`: "last" looks at those alone for which it is true.
fs::path find_checkpoint(const fs::path& output, const std::string& wish, std::vector<std::string>* passed_over = nullptr,
                         const std::function<bool(const fs::path&)>& belongs = {});

/// Which checkpoints `limit` (--save_total_limit; absent or not above 0: none) has removed: the oldest, until so many are
/// left, but never the newest nor those of `keep` (the best, the one this run was resumed from). As transformers, so more
/// than `limit` stay when more are protected.
std::vector<int64_t> checkpoints_to_remove(std::span<const int64_t> updates, std::optional<int64_t> limit,
                                           std::span<const int64_t> keep);

/// Renames a checkpoint to its removing_name(), which returns; what is left to do is remove_tree(). A kill in between
/// leaves nothing that looks like a checkpoint.
fs::path put_aside(Disk& disk, const fs::path& checkpoint);

/// Deletes what killed processes left in `output` (see above). The caller holds the folder's lock. Throws
/// Error{Environment}.
void remove_leftovers(Disk& disk, const fs::path& output);

/// From the finished `partial` to `checkpoint`, in one step; a folder that was there is put aside (its path is returned).
std::optional<fs::path> put_in_place(Disk& disk, const fs::path& partial, const fs::path& checkpoint);

}  // namespace lockstep::checkpoint
