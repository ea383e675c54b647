#pragma once

#include "lockstep/net/address.h"
#include "lockstep/rendezvous/messages.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::rendezvous {

/// "n2" before "n10": digits count as numbers, other characters by their code. A strict order.
bool naturally_before(std::string_view a, std::string_view b);

/// What is known of a node when ranks are given out.
struct RankCandidate {
  std::string host_name = {};
  net::Address address = {};              ///< as the coordinator sees it
  std::optional<int> wanted = {};         ///< SLURM_NODEID or --node_rank
  std::string origin = {};                ///< which of the two
  std::optional<int> index = {};          ///< from an earlier round: it keeps it
};

struct Ranks {
  /// Positions in the list of candidates, by group rank.
  std::vector<size_t> order = {};
  /// By group rank: what the node is numbered by over all rounds.
  std::vector<int> index = {};
  std::vector<std::string> warnings = {};
};

/// c10d: nodes of an earlier round keep their order; then wanted ranks where they differ and are below `max_nodes` (else
/// all wanted ranks of new nodes are ignored, with a warning that names the hosts); nodes without one fill the gaps in
/// natural order of host names, ties by address. Group ranks are then counted without gaps. static: the same, as the
/// caller has refused what does not fit (static_rank_problem).
Ranks assign_ranks(std::span<const RankCandidate> candidates, int max_nodes);

/// static: why `candidate` cannot come to those who are here: its rank is beyond the last or taken. Names both hosts.
/// Empty when it can.
std::string static_rank_problem(std::span<const RankCandidate> present, const RankCandidate& candidate, int max_nodes);
/// static: which of 0..max_nodes-1 nobody has yet, once those without a wanted rank have filled the first gaps.
std::vector<int> missing_ranks(std::span<const RankCandidate> present, int max_nodes);

/// "n2 (10.77.0.3)"
std::string node_name(std::string_view host_name, const net::Address& address);

/// What is known of how a node and the coordinator see each other.
struct SeenAddress {
  net::Address peer = {};       ///< of the node's connection, at the coordinator
  net::Address local = {};      ///< the coordinator's end of it
  std::string local_addr = {};  ///< --local_addr of the node; a numeric address or a name, passed on as it is
};
/// By which address the others reach `nodes[which]`: its --local_addr; else as the coordinator sees it; else, where that
/// is loopback (it is on the coordinator's host), the address of the coordinator that most others came to; else, where
/// all are on one host, loopback.
std::string reachable_address(std::span<const SeenAddress> nodes, size_t which);

}  // namespace lockstep::rendezvous
