#pragma once

#include "lockstep/checkpoint/checkpoint_folder.h"
#include "lockstep/checkpoint/rank_files.h"
#include "lockstep/comm/communicator.h"

#include <optional>
#include <vector>

/// The parts of a save that all ranks do together; used by CheckpointWriter.
namespace lockstep::checkpoint {

/// Collective. Rank 0 clears what killed runs left, and writes a probe that all must see. Throws Error{Environment} on
/// every rank.
void require_shared_folder(comm::Communicator& comm, Disk& disk, const fs::path& output);

struct Publication {
  fs::path folder;
  int64_t num_bytes = 0;
  std::optional<fs::path> replaced;  ///< rank 0: an older checkpoint of that name, aside, to be deleted
};

/// Collective. When all ranks report success, rank 0 checks the sizes, writes the manifest, fsyncs and renames; otherwise it
/// removes the unfinished folder and every rank throws what the first rank in trouble reported.
Publication publish(comm::Communicator& comm, Disk& disk, const fs::path& output, const CheckpointJob& job,
                    const RankReport& mine);

}  // namespace lockstep::checkpoint
