#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// The cut of an update into grains: a pure function of the samples' lengths and the options, never of processes,
/// threads or devices (DESIGN part 1).
namespace lockstep::data {

struct CutOptions {
  int64_t grain_tokens = 2048;   ///< a grain holds at most this many tokens (one longer sample is a grain alone)
  int64_t min_grains = 8;        ///< at least so many grains while there are samples enough
};

struct Grain {
  std::vector<int64_t> members;  ///< indices into the update's samples, in ascending order
  int64_t num_tokens = 0;
};

/// Part of the run's definition: changing this rule changes results. `lengths` are at least 1. The rule:
/// 1. Let L be the number of samples longer than grain_tokens and S the tokens of all others. The cut begins with
///    G = max(L + ceil(S / grain_tokens), min(min_grains, number of samples)) empty grains, numbered from 0, but with
///    no more than there are samples.
/// 2. Samples are placed longest first (ties: lower index first), each into the grain with the fewest tokens (ties:
///    lower number). If that one is not empty and would exceed grain_tokens, no other has room either, and the
///    sample opens a new grain.
/// 3. Grains are returned by descending tokens (ties: lower first member).
/// Permuting the samples leaves the grains' token counts as they are.
std::vector<Grain> cut_into_grains(std::span<const int64_t> lengths, const CutOptions& options);

/// Relative cost of a grain, in floating-point operations of its forward: tokens * flops_per_token (2 per weight that a
/// token meets) + 2 * attention_width * sum of squared document lengths, where attention_width = layers * heads *
/// head size (two causal products per layer). The backward costs about twice that in both parts.
double grain_cost(std::span<const int64_t> doc_lengths, int64_t flops_per_token, int64_t attention_width);

/// Deals grains to `num_workers` by cost, longest first to the least loaded; result[w] = grain indices by descending
/// cost. Every worker gets at least one grain while there are grains enough. Cannot show in the result of the run.
std::vector<std::vector<int64_t>> deal_grains(std::span<const double> costs, int64_t num_workers);

/// Sum of costs / (workers * largest load) under deal_grains(): 1 is perfect; 1 for no grains.
double balance(std::span<const double> costs, int64_t num_workers);

}  // namespace lockstep::data
