#pragma once

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_folder.h"
#include "lockstep/checkpoint/checkpoint_reader.h"
#include "lockstep/checkpoint/checkpoint_writer.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/shard/sharded_step.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// A small sharded state whose every value is a function of (update, parameter, state, element), so that what was read can
/// be compared with what must have been written.
namespace lockstep::checkpoint::rig {

/// Sizes around a piece of 4,096 elements, so that three owners cut them unevenly.
const tensor::ParamLayout& layout();

float value_at(int64_t update, tensor::ParamId param, const std::string& state, int64_t element);

/// One rank's share.
struct Rank {
  explicit Rank(comm::Communicator& comm);

  /// Collective. All masters and moments become those of `update`.
  void fill(int64_t update);
  /// Collective. From a checkpoint.
  void load(const CheckpointReader& reader);
  CheckpointJob job(int64_t update, at::ScalarType dtype = at::kFloat) const;
  /// How many of this rank's values, masters, moments and rounded weights, are not those of `update`.
  int64_t num_wrong(int64_t update) const;

  tensor::ParamStore params;
  ThreadTeam team;
  shard::ShardedStep sharded;
};

/// Calls `work` on `size` ranks at once; what each threw, as text ("" for nothing), in rank order.
std::vector<std::string> run_ranks(int size, const std::function<void(comm::Communicator&)>& work,
                                   Milliseconds timeout = Milliseconds(60'000));

/// Collective. The state of `update` becomes output/checkpoint-<update>.
void save(comm::Communicator& comm, const fs::path& output, int64_t update, at::ScalarType dtype = at::kFloat,
          Disk& disk = real_disk());

/// The same on `size` ranks; throws what a rank threw.
void save_with(int size, const fs::path& output, int64_t update, at::ScalarType dtype = at::kFloat);

/// Reads a checkpoint with one rank and counts wrong values against `update`.
int64_t num_wrong_in(const fs::path& checkpoint, int64_t update);

/// Entries of a folder, ascending.
std::vector<std::string> entries(const fs::path& folder);

void write_over(const fs::path& file, int64_t offset, char byte);

}  // namespace lockstep::checkpoint::rig
