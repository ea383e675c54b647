#include "lockstep/data/cut.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

namespace lockstep::data {
namespace {

/// Indices of `values`, largest value first, ties by lower index.
template <class T>
std::vector<int64_t> by_descending(std::span<const T> values) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  return order;
}

/// Step 1 of the rule.
int64_t initial_grains(std::span<const int64_t> lengths, const CutOptions& options) {
  int64_t num_long = 0;
  int64_t other_tokens = 0;
  for (const int64_t length : lengths) {
    LS_CHECK(length >= 1, "a sample of {} tokens", length);
    if (length > options.grain_tokens) {
      ++num_long;
    } else {
      other_tokens += length;
    }
  }
  const auto num_samples = static_cast<int64_t>(lengths.size());
  const int64_t needed = num_long + (other_tokens + options.grain_tokens - 1) / options.grain_tokens;
  return std::min(num_samples, std::max(needed, options.min_grains));
}

}  // namespace

std::vector<Grain> cut_into_grains(std::span<const int64_t> lengths, const CutOptions& options) {
  LS_CHECK(options.grain_tokens >= 1 && options.min_grains >= 1, "grain_tokens = {}, min_grains = {}",
           options.grain_tokens, options.min_grains);
  std::vector<Grain> grains(static_cast<size_t>(initial_grains(lengths, options)));

  using Entry = std::pair<int64_t, size_t>;  // tokens, number: the least is the emptiest, ties by lower number
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> emptiest;
  for (size_t number = 0; number < grains.size(); ++number) emptiest.emplace(0, number);

  for (const int64_t sample : by_descending(lengths)) {
    const int64_t length = lengths[static_cast<size_t>(sample)];
    auto [tokens, number] = emptiest.top();
    if (tokens > 0 && tokens + length > options.grain_tokens) {
      number = grains.size();
      grains.emplace_back();
    } else {
      emptiest.pop();
    }
    Grain& grain = grains[number];
    grain.members.push_back(sample);
    grain.num_tokens += length;
    emptiest.emplace(grain.num_tokens, number);
  }

  for (Grain& grain : grains) std::sort(grain.members.begin(), grain.members.end());
  std::sort(grains.begin(), grains.end(), [](const Grain& a, const Grain& b) {
    return std::pair(-a.num_tokens, a.members.front()) < std::pair(-b.num_tokens, b.members.front());
  });
  return grains;
}

double grain_cost(std::span<const int64_t> doc_lengths, int64_t flops_per_token, int64_t attention_width) {
  double tokens = 0;
  double squares = 0;
  for (const int64_t length : doc_lengths) {
    const auto tokens_of_doc = static_cast<double>(length);
    tokens += tokens_of_doc;
    squares += tokens_of_doc * tokens_of_doc;
  }
  return tokens * static_cast<double>(flops_per_token) + 2.0 * static_cast<double>(attention_width) * squares;
}

std::vector<std::vector<int64_t>> deal_grains(std::span<const double> costs, int64_t num_workers) {
  LS_CHECK(num_workers >= 1, "num_workers = {}", num_workers);
  std::vector<std::vector<int64_t>> hands(static_cast<size_t>(num_workers));
  // Load, then number of grains: grains of no cost must not all go to one worker.
  using Entry = std::tuple<double, size_t, size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> least_loaded;
  for (size_t worker = 0; worker < hands.size(); ++worker) least_loaded.emplace(0.0, 0, worker);

  for (const int64_t grain : by_descending(costs)) {
    const auto [load, num_grains, worker] = least_loaded.top();
    least_loaded.pop();
    hands[worker].push_back(grain);
    least_loaded.emplace(load + costs[static_cast<size_t>(grain)], num_grains + 1, worker);
  }
  return hands;
}

double balance(std::span<const double> costs, int64_t num_workers) {
  double total = 0;
  double largest = 0;
  for (const auto& hand : deal_grains(costs, num_workers)) {
    double load = 0;
    for (const int64_t grain : hand) load += costs[static_cast<size_t>(grain)];
    total += load;
    largest = std::max(largest, load);
  }
  return largest > 0 ? total / (static_cast<double>(num_workers) * largest) : 1.0;
}

}  // namespace lockstep::data
