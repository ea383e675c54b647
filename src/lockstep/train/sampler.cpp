#include "lockstep/train/sampler.h"

#include "lockstep/base/philox.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

namespace lockstep::train {
namespace {

std::vector<double> penalised(std::span<const float> logits, std::span<const int32_t> seen, double penalty) {
  std::vector<double> out(logits.begin(), logits.end());
  if (penalty == 1) return out;
  for (const int32_t id : std::set<int32_t>(seen.begin(), seen.end())) {
    double& logit = out[static_cast<size_t>(id)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
  return out;
}

struct Candidate {
  int32_t id;
  double probability;
};

/// Of the candidates in falling order; lower ids first among equals.
void normalise(std::vector<Candidate>& candidates) {
  const double sum = std::accumulate(candidates.begin(), candidates.end(), 0.0,
                                     [](double s, const Candidate& c) { return s + c.probability; });
  for (Candidate& c : candidates) c.probability /= sum;
}

/// The fewest whose probabilities reach top_p.
void keep_top_p(std::vector<Candidate>& candidates, double top_p) {
  double sum = 0;
  size_t count = 0;
  while (count < candidates.size() && sum < top_p) sum += candidates[count++].probability;
  candidates.resize(std::max<size_t>(count, 1));
}

std::vector<Candidate> candidates_of(const std::vector<double>& logits, const SamplingOptions& options) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto larger = [&](int32_t a, int32_t b) {
    const double x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x > y || (x == y && a < b);
  };
  const size_t count = options.top_k > 0 ? std::min(static_cast<size_t>(options.top_k), order.size()) : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<int64_t>(count), order.end(), larger);
  order.resize(count);
  const double top = logits[static_cast<size_t>(order[0])];
  std::vector<Candidate> out;
  for (const int32_t id : order) out.push_back({id, std::exp((logits[static_cast<size_t>(id)] - top) / options.temperature)});
  normalise(out);
  return out;
}

}  // namespace

int32_t next_token(std::span<const float> logits, std::span<const int32_t> seen, const SamplingOptions& options, uint64_t ordinal,
                   uint64_t position) {
  const std::vector<double> scores = penalised(logits, seen, options.repetition_penalty);
  if (options.temperature == 0) return static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  std::vector<Candidate> candidates = candidates_of(scores, options);
  if (options.top_p < 1) {
    keep_top_p(candidates, options.top_p);
    normalise(candidates);
  }
  if (options.min_p > 0) {
    const double least = options.min_p * candidates[0].probability;
    std::erase_if(candidates, [&](const Candidate& c) { return c.probability < least; });
    normalise(candidates);
  }
  const RandomStream stream{.seed = options.seed, .purpose = RandomPurpose::Generation, .ordinal = ordinal};
  const double draw = (static_cast<double>(stream.word(position)) + 0.5) * 0x1p-32;
  double sum = 0;
  for (const Candidate& c : candidates) {
    sum += c.probability;
    if (draw < sum) return c.id;
  }
  return candidates.back().id;
}

}  // namespace lockstep::train
