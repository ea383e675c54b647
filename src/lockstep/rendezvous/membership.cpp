#include "lockstep/rendezvous/membership.h"

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

using What = Decision::What;

std::string seconds(Milliseconds span) { return fmt::format("{:.1f} s", static_cast<double>(span.count()) / 1000); }

std::string plural(int count, std::string_view word) { return fmt::format("{} {}{}", count, word, count == 1 ? "" : "s"); }

/// "2 of 3 nodes", "2 nodes (2 to 4 are wanted)".
std::string how_many(int living, const MembershipOptions& options) {
  if (options.needed_nodes() == options.max_nodes) return fmt::format("{} of {}", living, plural(options.max_nodes, "node"));
  return fmt::format("{} of {} to {} nodes", living, options.min_nodes, options.max_nodes);
}

std::string rank_list(const std::vector<int>& ranks) {
  std::vector<std::string> texts;
  for (const int rank : ranks) texts.push_back(std::to_string(rank));
  return list_names(texts, texts.size());
}

std::string names_of_living(const Membership& state) {
  return list_names(first_names(state), static_cast<size_t>(state.num_living()));
}

/// Who is here and who is missing.
std::string attendance(const Membership& state, const MembershipOptions& options) {
  const int living = state.num_living();
  std::string text = fmt::format("{} here", how_many(living, options));
  if (living > 0) text += fmt::format(": {}", names_of_living(state));
  if (options.backend == Backend::Static) {
    text += fmt::format("; missing: node rank {}", rank_list(missing_ranks(state.candidates(), options.max_nodes)));
  } else if (living < options.needed_nodes()) {
    text += fmt::format("; missing: {}", plural(options.needed_nodes() - living, "node"));
  }
  // The note is a sentence, this goes on.
  if (!state.note.empty()) text += fmt::format("; {}", state.note.substr(0, state.note.find_last_not_of('.') + 1));
  return text;
}

Cause timeout_cause(const std::string& text) {
  return {.kind = ErrorKind::Timeout, .exit_code = exit_code(ErrorKind::Timeout), .text = text};
}

Decision decide_gathering(Milliseconds now, const Membership& state, const MembershipOptions& options) {
  const int living = state.num_living();
  const bool enough = living >= options.needed_nodes();
  if (living == options.max_nodes) {
    return {.what = What::Start, .reason = fmt::format("all {} are here", plural(living, "node"))};
  }
  if (enough && state.round > 0) {
    return {.what = What::Start, .reason = fmt::format("{} are left, which is enough", plural(living, "node"))};
  }
  const Milliseconds call_ends = state.last_joined + options.last_call;
  if (enough && now >= call_ends) {
    return {.what = What::Start, .reason = fmt::format("{} are here and no other came for {}", plural(living, "node"),
                                                       seconds(options.last_call))};
  }
  const Milliseconds deadline = enough ? call_ends : state.phase_since + options.join_timeout;
  if (now >= deadline) {
    std::string text = fmt::format("not all nodes came within {}: {}. Look at the launchers of the missing nodes, or raise "
                                   "--rdzv_conf join_timeout.", seconds(options.join_timeout), attendance(state, options));
    if (const auto cause = first_cause(state.causes)) text += fmt::format(" Why a restart was due: {}", cause->text);
    return {.what = What::EndFailure, .reason = text, .cause = timeout_cause(text)};
  }
  return {.reason = enough ? fmt::format("last call for more nodes: {}", attendance(state, options))
                           : fmt::format("waiting for nodes: {}", attendance(state, options)),
          .left = deadline - now};
}

Decision decide_running(const Membership& state) {
  if (const std::optional<Cause> cause = first_cause(state.causes)) {
    if (state.num_living() == 0) return {.what = What::EndFailure, .reason = cause->text, .cause = cause};
    return {.what = What::StopRound, .reason = cause->text, .cause = cause};
  }
  const bool all = std::all_of(state.nodes.begin(), state.nodes.end(),
                               [](const Node& node) { return !node.in_round || node.succeeded; });
  if (all) return {.what = What::EndSuccess, .reason = "all workers of all nodes succeeded"};
  return {};
}

Decision decide_stopping(Milliseconds now, const Membership& state, const MembershipOptions& options) {
  std::vector<uint64_t> ids;
  std::vector<std::string> names;
  for (const Node& node : state.nodes) {
    if (!node.in_round || !node.is_living() || node.stopped) continue;
    ids.push_back(node.id);
    names.push_back(node.name());
  }
  if (ids.empty()) {
    const std::optional<Cause> cause = first_cause(state.causes);
    if (state.restarts < options.max_restarts && state.num_living() > 0) {
      return {.what = What::Regather,
              .reason = fmt::format("restart {} of {}", state.restarts + 1, options.max_restarts)};
    }
    return {.what = What::EndFailure, .reason = cause->text, .cause = cause};
  }
  const Milliseconds deadline = state.phase_since + options.stop_timeout;
  if (now >= deadline) {
    return {.what = What::Drop,
            .reason = fmt::format("its workers had not stopped after {}", seconds(options.stop_timeout)),
            .nodes = ids};
  }
  return {.reason = fmt::format("waiting for workers to stop on {}", list_names(names, names.size())), .left = deadline - now};
}

void forget_the_gone(Membership& state) {
  std::erase_if(state.nodes, [](const Node& node) { return !node.is_living(); });
}

void begin_round(Membership& state, const Ranks& ranks) {
  forget_the_gone(state);
  ++state.round;
  state.causes.clear();
  state.note.clear();
  for (size_t rank = 0; rank < ranks.order.size(); ++rank) {
    Node& node = state.nodes[ranks.order[rank]];
    node.in_round = true;
    node.succeeded = false;
    node.stopped = false;
    node.group_rank = static_cast<int>(rank);
    node.rank.index = ranks.index[rank];
  }
}

/// As distinct_name().
std::string name_of_cause(const Membership& state, const Node& node) {
  const bool is_unique = std::none_of(state.nodes.begin(), state.nodes.end(), [&](const Node& other) {
    return other.id != node.id && other.rank.host_name == node.rank.host_name;
  });
  return is_unique ? node.rank.host_name : node.name();
}

/// A node of the round is gone: does that end the round?
void gone(Membership& state, Node& node, Node::Life life, Cause cause) {
  if (!node.is_living()) return;
  node.life = life;
  const bool round_goes_on = state.phase == Phase::Running || state.phase == Phase::Stopping;
  if (!round_goes_on) return forget_the_gone(state);
  if (!node.in_round || node.succeeded) return;
  cause.node = name_of_cause(state, node);
  if (cause.group_rank < 0) cause.group_rank = node.group_rank;
  state.causes.push_back(std::move(cause));
}

}  // namespace

Milliseconds ObservedClock::advance(Clock::time_point now) {
  exact_ += std::min<Clock::duration>(now - last_, kMaxCountedGap);
  last_ = now;
  observed_ = std::chrono::floor<Milliseconds>(exact_);
  return observed_;
}

Node* Membership::find(uint64_t id) {
  const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const Node& node) { return node.id == id; });
  return found == nodes.end() ? nullptr : &*found;
}

int Membership::num_living() const {
  return static_cast<int>(std::count_if(nodes.begin(), nodes.end(), [](const Node& node) { return node.is_living(); }));
}

std::vector<RankCandidate> Membership::candidates() const {
  std::vector<RankCandidate> living;
  for (const Node& node : nodes) {
    if (node.is_living()) living.push_back(node.rank);
  }
  return living;
}

Decision decide(Milliseconds now, const Membership& state, const MembershipOptions& options) {
  switch (state.phase) {
    case Phase::Gathering: return decide_gathering(now, state, options);
    case Phase::Running: return decide_running(state);
    case Phase::Stopping: return decide_stopping(now, state, options);
    case Phase::Ended: return {};
  }
  return {};
}

void apply(Milliseconds now, const Decision& decision, Membership& state, const Ranks* ranks) {
  const auto enter = [&](Phase phase) {
    state.phase = phase;
    state.phase_since = now;
  };
  switch (decision.what) {
    case What::Wait:
      return;
    case What::Start:
      LS_CHECK(ranks != nullptr, "a round without ranks");
      begin_round(state, *ranks);
      return enter(Phase::Running);
    case What::StopRound:
      return enter(Phase::Stopping);
    case What::Regather:
      forget_the_gone(state);
      for (Node& node : state.nodes) node.in_round = false;
      ++state.restarts;
      return enter(Phase::Gathering);
    case What::Drop:
      for (const uint64_t id : decision.nodes) note_lost(state, id, decision.reason);
      return;
    case What::EndSuccess:
    case What::EndFailure:
      return enter(Phase::Ended);
  }
}

JoinProblem join_problem(const Membership& state, const MembershipOptions& options, const RankCandidate& candidate) {
  const bool may_restart = state.restarts < options.max_restarts;
  if (state.phase == Phase::Ended) return {RefusalReason::Ending, "the job has ended"};
  if (state.num_living() >= options.max_nodes) {
    return {RefusalReason::Full, fmt::format("the job already has all its {}: {}. Raise --nnodes on every node, or stop the "
                                             "surplus launcher.", plural(options.max_nodes, "node"), names_of_living(state))};
  }
  if (state.phase == Phase::Running || (state.phase == Phase::Stopping && !may_restart)) {
    return {RefusalReason::Full, fmt::format("the job runs with {}: {}; a node cannot come to a running job. Start it before "
                                             "the last call ends (--rdzv_conf last_call_timeout).",
                                             plural(state.num_living(), "node"), names_of_living(state))};
  }
  if (options.backend == Backend::Static) {
    std::string problem = static_rank_problem(state.candidates(), candidate, options.max_nodes);
    if (!problem.empty()) return {RefusalReason::Rank, std::move(problem)};
  }
  return {};
}

std::string settings_problem(const MembershipOptions& options, const Join& join) {
  std::string problem;
  const auto differ = [&](std::string_view what, const auto& theirs, const auto& ours) {
    if (problem.empty() && theirs != ours) {
      problem = fmt::format("{} is {} on that node and {} where the nodes meet. Give the same on every node.", what, theirs,
                            ours);
    }
  };
  const auto nodes = [](auto min, auto max) { return fmt::format("{}:{}", min, max); };
  differ("--rdzv_backend", name(join.backend), name(options.backend));
  if (options.backend == Backend::Static) {
    differ("--nnodes", fmt::format("{}", join.max_nodes), fmt::format("{}", options.max_nodes));
  } else {
    differ("--nnodes", nodes(join.min_nodes, join.max_nodes), nodes(options.min_nodes, options.max_nodes));
  }
  differ("--max_restarts", static_cast<int64_t>(join.max_restarts), static_cast<int64_t>(options.max_restarts));
  return problem;
}

void note_joined(Milliseconds now, Membership& state, uint64_t id, const RankCandidate& candidate) {
  state.nodes.push_back({.id = id, .rank = candidate, .last_heard = now});
  state.last_joined = now;
}

void note_outcome(Membership& state, uint64_t id, const Outcome& outcome) {
  Node* node = state.find(id);
  if (node == nullptr || !node->in_round || static_cast<int>(outcome.round) != state.round) return;
  if (state.phase != Phase::Running && state.phase != Phase::Stopping) return;
  if (!outcome.cause) {
    node->succeeded = true;
    return;
  }
  // One from its Outcome, one from its Stopped; more than a few per node are nobody's report.
  if (state.causes.size() > 4 * state.nodes.size()) return;
  Cause cause = *outcome.cause;
  cause.node = name_of_cause(state, *node);
  cause.group_rank = node->group_rank;
  state.causes.push_back(std::move(cause));
}

void note_stopped(Membership& state, uint64_t id, const Stopped& stopped) {
  Node* node = state.find(id);
  if (node == nullptr || !node->in_round || state.phase != Phase::Stopping) return;
  if (static_cast<int>(stopped.round) != state.round) return;
  if (stopped.cause) note_outcome(state, id, {.round = stopped.round, .cause = stopped.cause});
  node->stopped = true;
}

void note_left(Membership& state, uint64_t id, const Cause& cause) {
  if (Node* node = state.find(id)) gone(state, *node, Node::Life::Left, cause);
}

void note_lost(Membership& state, uint64_t id, const std::string& how) {
  Node* node = state.find(id);
  if (node == nullptr) return;
  const std::string text = fmt::format("{} is lost: {}", node->name(), how);
  gone(state, *node, Node::Life::Lost, {.kind = ErrorKind::Peer, .exit_code = exit_code(ErrorKind::Peer), .text = text});
}

std::optional<Cause> first_cause(const std::vector<Cause>& causes) {
  if (causes.empty()) return std::nullopt;
  const auto root = std::find_if(causes.begin(), causes.end(), [](const Cause& cause) { return !cause.consequence; });
  return root == causes.end() ? causes.front() : *root;
}

std::vector<SilenceNews> check_silence(Milliseconds now, Membership& state, const MembershipOptions& options) {
  std::vector<SilenceNews> news;
  for (Node& node : state.nodes) {
    if (!node.is_living()) continue;
    const Milliseconds silence = now - node.last_heard;
    if (silence >= options.dead) {
      news.push_back({SilenceNews::What::Dead, node.id, silence});
    } else if (silence >= options.suspect && !node.silent_since) {
      node.silent_since = node.last_heard;
      news.push_back({SilenceNews::What::Suspect, node.id, silence});
    } else if (silence < options.suspect && node.silent_since) {
      news.push_back({SilenceNews::What::Recovered, node.id, node.last_heard - *node.silent_since});
      node.silent_since.reset();
    }
  }
  return news;
}

std::string list_names(const std::vector<std::string>& names, size_t total) {
  const size_t shown = std::min(names.size(), Status::kMaxNames);
  std::string text = fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "));
  if (shown < total) text += fmt::format(" and {} more", total - shown);
  return text;
}

std::string distinct_name(const std::vector<Member>& members, const Member& one) {
  const auto same = [&](const Member& member) { return member.host_name == one.host_name; };
  if (std::count_if(members.begin(), members.end(), same) < 2) return one.host_name;
  return fmt::format("{} ({})", one.host_name, one.address);
}

std::vector<std::string> first_names(const Membership& state) {
  std::vector<std::string> names;
  for (const Node& node : state.nodes) {
    if (names.size() == Status::kMaxNames) break;
    if (node.is_living()) names.push_back(node.name());
  }
  return names;
}

}  // namespace lockstep::rendezvous
