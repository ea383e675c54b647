// The coordinator's decisions carried out: rounds begin, stop and end. Connections and liveness are in coordinator.cpp.
#include "lockstep/rendezvous/coordinator.h"

#include "lockstep/rendezvous/ranks.h"

#include <algorithm>
#include <set>

namespace lockstep::rendezvous {
namespace {

/// Unequal numbers of workers are allowed and said.
/// Bounded, so that a Round of thousands of nodes stays small.
std::vector<std::string> all_addresses(const net::Address& peer, const Join& join) {
  constexpr size_t kMostAddresses = 8;
  std::vector<std::string> all = {peer.host()};
  for (const std::string& address : join.addresses) {
    if (all.size() < kMostAddresses && address != all.front()) all.push_back(address);
  }
  return all;
}

void note_unequal(const std::vector<Member>& members, std::vector<std::string>& notes) {
  std::set<uint32_t> different;
  for (const Member& member : members) different.insert(member.nproc);
  if (different.size() < 2) return;
  std::vector<std::string> texts;
  for (const Member& member : members) {
    if (texts.size() < Status::kMaxNames) texts.push_back(fmt::format("{} on {}", member.nproc, distinct_name(members, member)));
  }
  notes.push_back(fmt::format("nodes have unequal numbers of workers: {}", list_names(texts, members.size())));
}

}  // namespace

void Coordinator::decide_soon() {
  if (decide_timer_ != 0) return;
  decide_timer_ = loop_->after(Milliseconds(0), [this] { decide_now(); });
}

void Coordinator::decide_now() {
  loop_->cancel(decide_timer_);
  decide_timer_ = 0;
  clock_.advance(Clock::now());
  // A decision may make the next one possible at once: the last Stopped, then a new round.
  for (;;) {
    const Decision decision = decide(clock_.now(), state_, options_.membership);
    if (decision.what == Decision::What::Wait) return;
    carry_out(decision);
  }
}

void Coordinator::carry_out(const Decision& decision) {
  using What = Decision::What;
  switch (decision.what) {
    case What::Wait:
      return;
    case What::Start:
      return start_round(decision);
    case What::StopRound:
      return stop_round(decision);
    case What::Regather:
      log(log::Level::Info, decision.reason);
      apply(clock_.now(), decision, state_);
      return status_soon();
    case What::Drop:
      for (const uint64_t id : decision.nodes) {
        drop(id, decision.reason);
        if (Session* member = session(id)) member->refuse(RefusalReason::Other, ErrorKind::Timeout, decision.reason);
      }
      return sweep_soon();
    case What::EndSuccess:
    case What::EndFailure:
      apply(clock_.now(), decision, state_);
      return end_job(decision.cause);
  }
}

void Coordinator::start_round(const Decision& decision) {
  const std::vector<RankCandidate> candidates = state_.candidates();
  const Ranks ranks = assign_ranks(candidates, options_.membership.max_nodes);
  apply(clock_.now(), decision, state_, &ranks);
  Round round{.number = static_cast<uint32_t>(state_.round),
              .restarts = static_cast<uint32_t>(state_.restarts),
              .notes = ranks.warnings};
  std::vector<SeenAddress> seen;
  member_addresses_.clear();
  for (const size_t which : ranks.order) {
    const uint64_t id = state_.nodes[which].id;
    const Session& member = *sessions_.at(id);
    seen.push_back({member.peer(), member.local(), joins_.at(id).local_addr});
    note_addresses(member, joins_.at(id));
  }
  for (size_t rank = 0; rank < ranks.order.size(); ++rank) {
    const Node& node = state_.nodes[ranks.order[rank]];
    const Join& join = joins_.at(node.id);
    round.members.push_back({.node = node.id,
                             .index = static_cast<uint32_t>(ranks.index[rank]),
                             .host_name = join.host_name,
                             .address = reachable_address(seen, rank),
                             .nproc = join.nproc,
                             .role = join.role,
                             .addresses = all_addresses(seen[rank].peer, join)});
  }
  rules_.takes_late_nodes = static_cast<int>(round.members.size()) < options_.membership.max_nodes;
  round.master_address = round.members.front().address;
  round.master_port = joins_.at(round.members.front().node).store_port;
  note_unequal(round.members, round.notes);
  log(log::Level::Info, fmt::format("round {} begins: {}", round.number, decision.reason));
  for (const std::string& note : round.notes) log(log::Level::Warning, note);
  broadcast(round);
}

void Coordinator::stop_round(const Decision& decision) {
  apply(clock_.now(), decision, state_);
  const bool will_restart = state_.restarts < options_.membership.max_restarts;
  rules_.is_ending = !will_restart;
  // The end tells the cause by itself.
  log(will_restart ? log::Level::Warning : log::Level::Info,
      fmt::format("round {} is stopped on all nodes{}: {}", state_.round, will_restart ? " and begins anew" : "",
                  decision.reason));
  Cause cause = *decision.cause;
  cause.text = shortened(std::move(cause.text));
  broadcast(Stop{static_cast<uint32_t>(state_.round), will_restart, std::move(cause)});
  // The end comes next where nobody is left to stop; else a Status tells for whom the others wait.
  next_status_ = Clock::now() + options_.status_interval;
}

void Coordinator::abort(const Cause& cause) {
  if (has_ended()) return;
  apply(clock_.now(), {.what = Decision::What::EndFailure}, state_);
  end_job(cause);
}

void Coordinator::end_job(std::optional<Cause> cause) {
  if (cause) cause->text = shortened(std::move(cause->text));
  cause_ = std::move(cause);
  rules_.is_ending = true;
  if (cause_) {
    log(log::Level::Info, fmt::format("the job has ended: {}", cause_->text));
  } else {
    log(log::Level::Info, "the job has ended well on all nodes");
  }
  broadcast(End{cause_});
  for (const auto& [id, member] : sessions_) {
    if (member->has_joined()) member->finish(kLastWords);
  }
  finish_timer_ = loop_->after(kLastWords, [this] { finished_ = true; });
  farewell_timer_ = loop_->after(options_.quiet_farewell, [this] { tell_farewell(); });
  sweep_soon();
}

void Coordinator::tell_farewell() {
  if (finished_) return;
  std::vector<std::string> names;
  for (const auto& [id, join] : joins_) {
    const Session* member = session(id);
    if (member != nullptr && !member->is_over() && names.size() < Status::kMaxNames) {
      names.push_back(node_name(join.host_name, member->peer()));
    }
  }
  if (names.empty()) return;
  std::sort(names.begin(), names.end());
  const auto left = std::chrono::duration<double>(kLastWords - options_.quiet_farewell);
  log(log::Level::Warning, fmt::format("the job has ended {}; waiting up to {:.0f} s for {} to take note of it, as nothing has "
                                       "come back from there", cause_ ? "with a failure" : "well", left.count(),
                                       list_names(names, joins_.size())));
}

}  // namespace lockstep::rendezvous
