#pragma once

#include "lockstep/comm/communicator.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// What a run looks at before it takes anything from a checkpoint, and how it knows that it is done.
namespace lockstep::recipes {

/// Collective. What is wrong with a checkpoint, a line for each file, after every byte of it was hashed: each rank its share
/// of the files, on `threads` threads. Empty when it is whole. The same on every rank.
std::string damage_of(const std::filesystem::path& checkpoint, int threads, comm::Communicator& comm);

/// Collective. Throws Error{Data} with each damaged file and what can be resumed from instead. `output`: where the run's
/// checkpoints lie.
void require_whole(const std::filesystem::path& checkpoint, const std::filesystem::path& output, int threads,
                   comm::Communicator& comm);

/// The checkpoint of `update` in the first of these folders that holds one of the run with this run.json; empty when it is gone.
std::filesystem::path checkpoint_of_run(int64_t update, const std::vector<std::filesystem::path>& folders,
                                        const std::string& run_json);

/// Writes run.json with the mark of a run whose model and results are all in place.
void mark_ended(const std::filesystem::path& output, const std::string& run_json, int64_t update);
/// Whether the run with this run.json has ended in `output` with `update`, and with options that would bring it to the same
/// end again.
bool has_ended(const std::filesystem::path& output, const std::string& run_json, int64_t update);

}  // namespace lockstep::recipes
