#include "lockstep/train/plan.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <random>

namespace lockstep::train {
namespace {

std::vector<std::vector<int64_t>> deal_shuffled(int64_t num_grains, int64_t num_ranks, uint64_t seed, int64_t update) {
  std::mt19937_64 random(seed * 1'000'003 + static_cast<uint64_t>(update));
  std::vector<int64_t> grains(static_cast<size_t>(num_grains));
  std::iota(grains.begin(), grains.end(), 0);
  std::shuffle(grains.begin(), grains.end(), random);
  std::vector<std::vector<int64_t>> dealt(static_cast<size_t>(num_ranks));
  for (size_t i = 0; i < grains.size(); ++i) {
    // One for each rank, then anyone.
    const size_t rank = i < dealt.size() ? i : random() % dealt.size();
    dealt[rank].push_back(grains[i]);
  }
  return dealt;
}

}  // namespace

GrainOrder grain_order_from_text(const std::string& text) {
  if (text == "ascending") return {};
  if (text == "descending") return {GrainOrder::Kind::Descending, 0};
  const std::string prefix = "shuffled:";
  uint64_t seed = 0;
  const char* begin = text.data() + std::min(prefix.size(), text.size());
  const char* end = text.data() + text.size();
  if (text.starts_with(prefix)) {
    const auto [stop, problem] = std::from_chars(begin, end, seed);
    if (problem == std::errc() && stop == end) return {GrainOrder::Kind::Shuffled, seed};
  }
  throw Error::usage("--grain_order = '{}': must be ascending, descending or shuffled:SEED.", text);
}

UpdatePlan plan_update(const std::vector<SampleSize>& sizes, data::UpdateSamples samples, const PlanOptions& options) {
  UpdatePlan plan;
  plan.samples = std::move(samples);
  for (const int64_t row : plan.samples.rows) {
    const SampleSize& size = sizes[static_cast<size_t>(row)];
    plan.lengths.push_back(size.tokens);
    plan.num_tokens += size.tokens;
    plan.num_targets += size.targets;
  }
  plan.grains = data::cut_into_grains(plan.lengths, options.cut);
  for (const data::Grain& grain : plan.grains) {
    std::vector<int64_t> lengths;
    int64_t targets = 0;
    for (const int64_t member : grain.members) {
      lengths.push_back(plan.lengths[static_cast<size_t>(member)]);
      targets += sizes[static_cast<size_t>(plan.samples.rows[static_cast<size_t>(member)])].targets;
    }
    plan.costs.push_back(data::grain_cost(lengths, options.cost.flops_per_token, options.cost.attention_width));
    plan.grain_targets.push_back(targets);
  }
  if (options.order.kind == GrainOrder::Kind::Shuffled) {
    plan.dealt = deal_shuffled(static_cast<int64_t>(plan.grains.size()), options.num_ranks, options.order.seed,
                               plan.samples.update);
    return plan;
  }
  plan.dealt = data::deal_grains(plan.costs, options.num_ranks);
  if (options.order.kind == GrainOrder::Kind::Descending) {
    for (auto& mine : plan.dealt) std::reverse(mine.begin(), mine.end());
  }
  return plan;
}

}  // namespace lockstep::train
