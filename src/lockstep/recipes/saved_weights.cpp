#include "lockstep/recipes/saved_weights.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace lockstep::recipes {
namespace {

template <class Narrow>
void round_all(std::span<const float> values, std::span<float> out) {
  std::transform(values.begin(), values.end(), out.begin(), [](float value) {
    const auto rounded = static_cast<float>(static_cast<Narrow>(value));
    return std::isfinite(rounded) ? rounded : value;
  });
}

}  // namespace

void SavedWeights::round(bool keep) {
  if (saved_ == at::kFloat) return;
  for (const shard::OwnedState& state : trainer_.owned_states()) {
    if (keep && state.state == shard::kMasterState) kept_.emplace_back(state.values.begin(), state.values.end());
  }
  trainer_.replace_masters([this](const shard::OwnedState& what, std::span<float> out) {
    if (saved_ == at::kBFloat16) {
      round_all<c10::BFloat16>(what.values, out);
    } else {
      round_all<c10::Half>(what.values, out);
    }
  });
}

void SavedWeights::put_back() {
  if (saved_ == at::kFloat) return;
  std::map<std::pair<tensor::ParamId, int64_t>, const std::vector<float>*> by_place;
  size_t next = 0;
  for (const shard::OwnedState& state : trainer_.owned_states()) {
    if (state.state == shard::kMasterState) by_place[{state.param, state.begin}] = &kept_.at(next++);
  }
  trainer_.replace_masters([&](const shard::OwnedState& what, std::span<float> out) {
    const std::vector<float>& values = *by_place.at({what.param, what.begin});
    std::copy(values.begin(), values.end(), out.begin());
  });
  kept_.clear();
}

}  // namespace lockstep::recipes
