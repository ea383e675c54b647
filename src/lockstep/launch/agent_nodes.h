#pragma once

#include "lockstep/launch/node_job.h"
#include "lockstep/launch/run_spec.h"
#include "lockstep/net/token.h"
#include "lockstep/rendezvous/coordinator.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace lockstep::launch {

/// What an agent of several needs to know beside the job itself.
struct MeetingSpec {
  rendezvous::Backend backend = rendezvous::Backend::C10d;
  rendezvous::MembershipOptions membership = {};
  std::optional<bool> is_host = {};
  std::optional<net::Token> token = {};
  bool require_token = false;
  std::string rank_origin = "--node_rank";    ///< where spec.node_rank is from
  std::optional<int64_t> deadline = {};       ///< of the allocation, seconds since 1970
  bool logs_info = false;                     ///< print who comes and goes, too
  std::function<void()> on_round = {};        ///< all are here, and have shown their token
};
/// From the spec and its --rdzv_conf; `token` is left to the caller. Throws Error{Usage}.
MeetingSpec make_meeting(const RunSpec& spec);

/// Runs this node's part of a job over several nodes: meets the others, runs the rounds, ends with all. Returns the exit
/// code: the first cause's, on whichever node it lies. Throws Error{Usage, Environment} before anything has started.
int run_on_nodes(const RunSpec& spec, const MeetingSpec& meeting, NodeJob& job);

}  // namespace lockstep::launch
