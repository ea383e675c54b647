#include "lockstep/rendezvous/ranks.h"

#include <algorithm>
#include <map>

namespace lockstep::rendezvous {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The run of digits at the start of `text`.
std::string_view digits_of(std::string_view text) {
  const auto end = std::find_if_not(text.begin(), text.end(), is_digit);
  return text.substr(0, static_cast<size_t>(end - text.begin()));
}

std::string_view without_zeros(std::string_view digits) {
  const size_t first = digits.find_first_not_of('0');
  return first == std::string_view::npos ? std::string_view() : digits.substr(first);
}

bool before(const RankCandidate& a, const RankCandidate& b) {
  if (a.host_name != b.host_name) return naturally_before(a.host_name, b.host_name);
  return a.address < b.address;
}

std::string name_of(const RankCandidate& candidate) { return node_name(candidate.host_name, candidate.address); }

/// What is wrong with the wanted ranks of new nodes; empty when they can be given.
std::string conflict(std::span<const RankCandidate> candidates, int max_nodes) {
  std::map<int, const RankCandidate*> taken;
  for (const RankCandidate& candidate : candidates) {
    if (candidate.index || !candidate.wanted) continue;
    const int wanted = *candidate.wanted;
    if (wanted < 0 || wanted >= max_nodes) {
      return fmt::format("{} {} of {} is not below the number of nodes, {}", candidate.origin, wanted, name_of(candidate),
                         max_nodes);
    }
    const auto [other, is_new] = taken.emplace(wanted, &candidate);
    if (!is_new) {
      return fmt::format("{} and {} both have {} {}", name_of(*other->second), name_of(candidate), candidate.origin, wanted);
    }
  }
  return {};
}

}  // namespace

bool naturally_before(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a;
  const std::string_view whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view digits_a = digits_of(a);
      const std::string_view digits_b = digits_of(b);
      const std::string_view number_a = without_zeros(digits_a);
      const std::string_view number_b = without_zeros(digits_b);
      if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
      if (number_a != number_b) return number_a < number_b;
      a.remove_prefix(digits_a.size());
      b.remove_prefix(digits_b.size());
    } else {
      if (a.front() != b.front()) return a.front() < b.front();
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  if (a.empty() != b.empty()) return a.empty();
  return whole_a < whole_b;  // "n01" and "n1"
}

std::string node_name(std::string_view host_name, const net::Address& address) {
  return fmt::format("{} ({})", host_name, address.host());
}

Ranks assign_ranks(std::span<const RankCandidate> candidates, int max_nodes) {
  Ranks ranks;
  const std::string problem = conflict(candidates, max_nodes);
  if (!problem.empty()) {
    ranks.warnings.push_back(fmt::format("the given node ranks are ignored, nodes are ordered by host name: {}.", problem));
  }
  std::map<int, size_t> at;  // index -> candidate
  const bool is_first_round =
      std::none_of(candidates.begin(), candidates.end(), [](const RankCandidate& c) { return c.index.has_value(); });
  std::vector<size_t> without;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].index) at.emplace(*candidates[i].index, i);
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].index) continue;
    const bool placed = candidates[i].wanted && problem.empty() && at.emplace(*candidates[i].wanted, i).second;
    if (!placed) without.push_back(i);
  }
  std::sort(without.begin(), without.end(), [&](size_t a, size_t b) { return before(candidates[a], candidates[b]); });
  int gap = 0;
  for (const size_t i : without) {
    while (!at.emplace(gap, i).second) ++gap;
  }
  for (const auto& [index, candidate] : at) {
    // In the first round nobody knows an index yet, so it can be the rank even where some wanted ranks did not come.
    ranks.index.push_back(is_first_round ? static_cast<int>(ranks.order.size()) : index);
    ranks.order.push_back(candidate);
  }
  return ranks;
}

std::string static_rank_problem(std::span<const RankCandidate> present, const RankCandidate& candidate, int max_nodes) {
  if (!candidate.wanted || candidate.index) return {};
  std::vector<RankCandidate> all;
  for (const RankCandidate& other : present) {
    all.push_back(other);
    if (other.index) all.back().wanted = other.index;
    all.back().index.reset();
  }
  all.push_back(candidate);
  const std::string problem = conflict(all, max_nodes);
  if (problem.empty()) return {};
  return fmt::format("{}. Give each node a rank of its own from 0 to {}.", problem, max_nodes - 1);
}

std::vector<int> missing_ranks(std::span<const RankCandidate> present, int max_nodes) {
  std::vector<bool> taken(static_cast<size_t>(max_nodes), false);
  size_t num_anywhere = 0;
  for (const RankCandidate& candidate : present) {
    const std::optional<int> rank = candidate.index ? candidate.index : candidate.wanted;
    if (rank && *rank >= 0 && *rank < max_nodes) {
      taken[static_cast<size_t>(*rank)] = true;
    } else {
      ++num_anywhere;
    }
  }
  std::vector<int> missing;
  for (size_t rank = 0; rank < taken.size(); ++rank) {
    if (taken[rank]) continue;
    if (num_anywhere > 0) {
      --num_anywhere;
    } else {
      missing.push_back(static_cast<int>(rank));
    }
  }
  return missing;
}

std::string reachable_address(std::span<const SeenAddress> nodes, size_t which) {
  const SeenAddress& node = nodes[which];
  if (!node.local_addr.empty()) return node.local_addr;
  if (!node.peer.is_loopback()) return node.peer.host();
  std::map<net::Address, int> votes;
  for (const SeenAddress& other : nodes) {
    if (!other.peer.is_loopback()) ++votes[other.local.with_port(0)];
  }
  if (votes.empty()) return node.peer.host();
  const auto most = std::max_element(votes.begin(), votes.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  return most->first.host();
}

}  // namespace lockstep::rendezvous
