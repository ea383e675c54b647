// A round on this node, and how the others hear of its end.
#include "lockstep/base/error.h"
#include "lockstep/launch/agent_nodes_impl.h"

#include <algorithm>
#include <csignal>

namespace lockstep::launch {
namespace {

std::string counted(size_t count, std::string_view word) {
  return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s");
}

}  // namespace

void NodesAgent::begin_round(const rendezvous::Round& round, int group_rank) {
  // A signal that has been passed on already would not reach workers that are started now.
  if (leaving_ || job_.interrupted_by() != 0) return;
  members_.clear();
  for (const rendezvous::Member& member : round.members) {
    std::vector<std::string> texts = member.addresses;
    texts.push_back(member.address);
    for (const std::string& text : texts) {
      if (const auto address = net::Address::parse(text, 0)) members_.push_back(*address);
    }
  }
  if (meeting_.on_round) meeting_.on_round();
  store_->clear();
  group_rank_ = group_rank;
  name_ = rendezvous::distinct_name(round.members, round.members[static_cast<size_t>(group_rank)]);
  round_ = round.number;
  told_ = false;
  start_failure_.clear();
  try {
    const Placement placement = place(round, group_rank);
    if (group_rank == 0) tell_round(round, placement);
    job_.start(placement);
  } catch (const Error& error) {
    tell_start_failure(error);
  } catch (const std::exception& problem) {
    tell_start_failure(Error::environment("the workers cannot be started: {}", problem.what()));
  }
}

/// Between rounds nobody gets into the store: a worker of the next round that is quicker than this node would meet the keys
/// of the last one, and be cut off.
void NodesAgent::close_store() {
  members_.clear();
  store_->clear();
}

Placement NodesAgent::place(const rendezvous::Round& round, int group_rank) {
  Placement placement;
  placement.restart_count = static_cast<int>(round.restarts);
  placement.group_rank = group_rank;
  placement.group_world_size = static_cast<int>(round.members.size());
  placement.world_size = 0;
  placement.role_world_size = 0;
  std::string hosts;
  for (size_t i = 0; i < round.members.size(); ++i) {
    const rendezvous::Member& member = round.members[i];
    const int before = static_cast<int>(i) < group_rank ? static_cast<int>(member.nproc) : 0;
    const bool same_role = member.role == spec_.role;
    placement.rank_base += before;
    placement.world_size += static_cast<int>(member.nproc);
    if (same_role) placement.role_rank_base += before;
    if (same_role) placement.role_world_size += static_cast<int>(member.nproc);
    hosts += fmt::format("{} {} {}\n", member.host_name, member.address, member.nproc);
  }
  const rendezvous::Member& own = round.members[static_cast<size_t>(group_rank)];
  placement.node_index = static_cast<int>(own.index);
  placement.own_addr = own.address;
  placement.master_addr = is_static() ? spec_.endpoint_host : round.master_address;
  placement.master_port = is_static() && spec_.use_agent_store ? spec_.endpoint_port : round.master_port;
  placement.host_list_file = host_list_folder_.path() / "hosts";
  write_file_atomically(*placement.host_list_file, hosts);
  placement.deadline = meeting_.deadline;
  return placement;
}

void NodesAgent::tell_round(const rendezvous::Round& round, const Placement& placement) {
  std::vector<std::string> names;
  for (const rendezvous::Member& member : round.members) {
    names.push_back(fmt::format("{} ({}) x {}", member.host_name, member.address, member.nproc));
  }
  const std::string restart = round.restarts > 0 ? fmt::format(", restart {} of {}", round.restarts, spec_.max_restarts)
                                                 : std::string();
  job_.say(fmt::format("{}, {}{}: {}; workers meet at {}:{}", counted(names.size(), "node"),
                       counted(static_cast<size_t>(placement.world_size), "worker"), restart,
                       rendezvous::list_names(names, names.size()), placement.master_addr, placement.master_port));
}

void NodesAgent::tell_outcome() {
  if (!told_) outcome_ = job_.take_outcome();
  const std::optional<rendezvous::Cause> cause = cause_of(outcome_);
  if (leaving_) {
    link_->leave(interrupt_cause());
    round_ = 0;
  } else if (stopping_) {
    close_store();
    link_->stopped(round_, told_ ? std::nullopt : cause);
    stopping_ = false;
    round_ = 0;
  } else {
    link_->outcome(round_, cause);
    waits_since_ = Clock::now();
  }
  told_ = true;
}

void NodesAgent::tell_start_failure(const Error& error) {
  rendezvous::Cause cause = own_cause(error.kind(), error.exit_code(), error.what());
  outcome_ = {};
  outcome_.exit_code = error.exit_code();
  start_failure_ = error.what();
  told_ = true;
  link_->outcome(round_, cause);
}

rendezvous::Cause NodesAgent::own_cause(ErrorKind kind, int exit_code, const std::string& text) const {
  rendezvous::Cause cause;
  cause.kind = kind;
  cause.exit_code = exit_code;
  cause.node = name_;
  cause.group_rank = group_rank_;
  cause.text = rendezvous::shortened(text);
  return cause;
}

std::optional<rendezvous::Cause> NodesAgent::cause_of(const RoundOutcome& outcome) const {
  if (outcome.succeeded || !outcome.cause) return std::nullopt;
  const auto first = std::find_if(outcome.ends.begin(), outcome.ends.end(), [&](const WorkerEnd& end) {
    return end.world_rank == outcome.cause->world_rank;
  });
  rendezvous::Cause cause =
      own_cause(error_kind(*first).value_or(ErrorKind::Peer), outcome.exit_code, outcome.cause_text);
  cause.world_rank = outcome.cause->world_rank;
  cause.consequence = classify(*first) == EndClass::Consequence;
  return cause;
}

void NodesAgent::stop_round(const rendezvous::Stop& stop) {
  stopping_ = true;
  waits_since_ = Clock::now();
  tell_stop(stop);
  if (round_ == 0 || stop.round != round_) {
    stopping_ = false;
    return link_->stopped(stop.round);
  }
  if (!job_.running()) return;
  if (is_interrupt(stop.cause)) return job_.stop(SIGTERM, spec_.shutdown_timeout);
  job_.give_up(spec_.shutdown_timeout);
}

void NodesAgent::tell_stop(const rendezvous::Stop& stop) {
  const std::string again = stop.will_restart ? " and started again" : "";
  // Where the coordinator lives it has said who is lost, and why a round begins anew.
  const bool is_told = coordinator_ && (stop.will_restart || names_its_node(stop.cause));
  if (is_own(stop.cause)) {
    if (stop.will_restart && !is_told) job_.say(stop.cause.text + "; the workers of all nodes are stopped and started again");
  } else {
    job_.say(is_told ? "the workers here are stopped" + again
                     : fmt::format("{}; the workers here are stopped{}", with_node(stop.cause), again));
  }
}

}  // namespace lockstep::launch
