#include "lockstep/recipes/replay_states.h"

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_reader.h"

#include <nlohmann/json.hpp>

#include <bit>
#include <map>
#include <utility>

namespace lockstep::recipes {
namespace {

using StateKey = std::pair<tensor::ParamId, std::string>;
/// Different elements and all elements.
using StateCounts = std::map<StateKey, std::pair<int64_t, int64_t>>;

int64_t count_different(std::span<const float> a, std::span<const float> b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) count += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) ? 1 : 0;
  return count;
}

/// Of this rank's share.
StateCounts count_share(const train::Trainer& trainer, const checkpoint::CheckpointReader& reader) {
  StateCounts counts;
  std::vector<float> stored;
  for (const shard::OwnedState& owned : trainer.owned_states()) {
    const std::string& name = trainer.layout().spec(owned.param).name;
    if (!reader.numel(name, owned.state)) continue;
    stored.resize(owned.values.size());
    reader.read(name, owned.state, owned.begin, stored);
    const int64_t different = count_different(owned.values, stored);
    if (different > 0) counts[{owned.param, owned.state}] = {different, owned.numel};
  }
  return counts;
}

}  // namespace

StateComparison compare_states(const train::Trainer& trainer, const std::filesystem::path& checkpoint, comm::Communicator& comm) {
  nlohmann::json mine = {{"unreadable", ""}, {"counts", nlohmann::json::array()}};
  try {
    for (const auto& [key, count] : count_share(trainer, checkpoint::CheckpointReader(checkpoint))) {
      mine["counts"].push_back({key.first, key.second, count.first, count.second});
    }
  } catch (const Error& problem) {
    mine["unreadable"] = problem.what();
  }
  StateComparison comparison;
  StateCounts all;
  for (const std::string& text : comm.all_gather_text(mine.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
                                                      "comparison with a checkpoint")) {
    const auto theirs = nlohmann::json::parse(text);
    if (comparison.unreadable.empty()) comparison.unreadable = theirs["unreadable"];
    for (const auto& entry : theirs["counts"]) {
      auto& count = all[{entry[0].get<tensor::ParamId>(), entry[1].get<std::string>()}];
      count.first += entry[2].get<int64_t>();
      count.second = entry[3].get<int64_t>();
    }
  }
  const auto num_blocks = static_cast<size_t>(trainer.layout().num_blocks());
  for (const auto& [key, count] : all) {
    const tensor::ParamSpec& spec = trainer.layout().spec(key.first);
    comparison.differences.push_back(
        {block_name(static_cast<size_t>(spec.block), num_blocks), spec.name, key.second, count.first, count.second});
  }
  return comparison;
}

}  // namespace lockstep::recipes
