#pragma once

#include "lockstep/base/files.h"
#include "lockstep/base/thread_team.h"

#include <cstdint>

namespace lockstep::checkpoint {

/// The hash of a file as a manifest has it (manifest.h). `team` shares the work. Throws Error{Data} for a file that cannot
/// be read or whose head is no safetensors header, though its name ends in .safetensors.
uint64_t hash_of_file(const fs::path& path, ThreadTeam* team = nullptr);

}  // namespace lockstep::checkpoint
