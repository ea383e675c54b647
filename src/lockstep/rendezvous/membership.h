#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/rendezvous/messages.h"
#include "lockstep/rendezvous/ranks.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

/// Who belongs to the job and what follows from it, without a socket, a clock or a thread. All times are the
/// coordinator's observed time (see ObservedClock), in milliseconds since it began.
namespace lockstep::rendezvous {

/// Time in which the coordinator could have noticed something. Of a gap between two calls only kMaxCountedGap counts, so
/// that one that was itself stopped, or got no processor, blames nobody for its own silence.
class ObservedClock {
 public:
  static constexpr Milliseconds kMaxCountedGap{200};
  explicit ObservedClock(Clock::time_point now) : last_(now) {}
  /// `now` never decreases.
  Milliseconds advance(Clock::time_point now);
  Milliseconds now() const { return observed_; }

 private:
  Clock::time_point last_;
  Clock::duration exact_{0};
  Milliseconds observed_{0};
};

struct MembershipOptions {
  Backend backend = Backend::C10d;
  int min_nodes = 1;  ///< static ignores it: all max_nodes are needed
  int max_nodes = 1;
  int max_restarts = 0;
  Milliseconds join_timeout{600'000};
  Milliseconds last_call{30'000};    ///< after the last node that came, while there are fewer than max_nodes
  Milliseconds suspect{1'500};       ///< silence that is reported
  Milliseconds dead{5'000};          ///< silence that ends a node's membership
  Milliseconds stop_timeout{120'000}; ///< from Stop until a node that has not answered Stopped counts as lost

  int needed_nodes() const { return backend == Backend::Static ? max_nodes : min_nodes; }
};

/// A node that has joined.
struct Node {
  enum class Life { Living, Lost, Left };

  uint64_t id = 0;
  RankCandidate rank = {};  ///< with host name and address
  Milliseconds last_heard{0};
  std::optional<Milliseconds> silent_since = {};  ///< set while it is suspect
  Life life = Life::Living;
  bool in_round = false;    ///< of the current round; a newcomer waits for the next
  bool succeeded = false;   ///< all its workers of the round ended well
  bool stopped = false;     ///< none of its workers of the round is left
  int group_rank = -1;      ///< in the current round

  std::string name() const { return node_name(rank.host_name, rank.address); }
  bool is_living() const { return life == Life::Living; }
};

enum class Phase { Gathering, Running, Stopping, Ended };

struct Membership {
  Phase phase = Phase::Gathering;
  Milliseconds phase_since{0};
  Milliseconds last_joined{0};
  int round = 0;     ///< of the round that runs or ran last; 0 before the first
  int restarts = 0;  ///< of the whole job
  std::vector<Node> nodes = {};    ///< in the order they joined; those gone stay until the round is over
  std::vector<Cause> causes = {};  ///< of the round, in the order they became known
  std::string note = {};           ///< the last refusal of an authenticated node: often why one is missing

  Node* find(uint64_t id);
  int num_living() const;
  std::vector<RankCandidate> candidates() const;  ///< of living nodes
};

struct Decision {
  enum class What {
    Wait,
    Start,       ///< give out ranks, begin the next round
    StopRound,   ///< tell every living node of the round to stop
    Regather,    ///< all have stopped: begin to gather for the next round, which counts as a restart
    Drop,        ///< `nodes` did not stop in time: they are lost
    EndSuccess,
    EndFailure,  ///< with `cause`
  };
  What what = What::Wait;
  std::string reason = {};             ///< for people; Wait in Running: empty
  std::optional<Cause> cause = {};     ///< StopRound, EndFailure
  std::vector<uint64_t> nodes = {};    ///< Drop
  std::optional<Milliseconds> left = {};  ///< Wait: until the deadline of this wait
};

/// What is to be done now. Changes nothing; apply() does.
Decision decide(Milliseconds now, const Membership& state, const MembershipOptions& options);
/// Takes a decision over into the state: phase, round, counters. Start also needs the ranks given out (from
/// state.candidates()); it leaves group_rank and index in the nodes.
void apply(Milliseconds now, const Decision& decision, Membership& state, const Ranks* ranks = nullptr);

/// Why a node may not join now (surplus, static rank taken); `text` is empty when it may.
struct JoinProblem {
  RefusalReason reason = RefusalReason::Other;
  std::string text = {};
};
JoinProblem join_problem(const Membership& state, const MembershipOptions& options, const RankCandidate& candidate);
/// Differences between what the node and the coordinator were told, naming both values; empty without one.
std::string settings_problem(const MembershipOptions& options, const Join& join);

// ---- what happens to a node. Unknown ids and rounds that are over are ignored.
void note_joined(Milliseconds now, Membership& state, uint64_t id, const RankCandidate& candidate);
void note_outcome(Membership& state, uint64_t id, const Outcome& outcome);
void note_stopped(Membership& state, uint64_t id, const Stopped& stopped);
void note_left(Membership& state, uint64_t id, const Cause& cause);
/// `how`: "its connection was closed (the launcher there ended or was killed)".
void note_lost(Membership& state, uint64_t id, const std::string& how);

/// The cause that explains the others: the first that is not a consequence, else the first.
std::optional<Cause> first_cause(const std::vector<Cause>& causes);

struct SilenceNews {
  enum class What { Suspect, Recovered, Dead };
  What what;
  uint64_t id;
  Milliseconds span;
  bool operator==(const SilenceNews&) const = default;
};
/// Of living nodes. Suspect and Recovered are told once; the span of Recovered is how long the silence was.
std::vector<SilenceNews> check_silence(Milliseconds now, Membership& state, const MembershipOptions& options);

/// "n1 (10.77.0.1), n2 (10.77.0.2)", at most Status::kMaxNames of them, then "and 84 more" up to `total`.
std::string list_names(const std::vector<std::string>& names, size_t total);
/// The host name of one of them; "n1 (10.77.0.2)" where another one has the same.
std::string distinct_name(const std::vector<Member>& members, const Member& one);
/// The first Status::kMaxNames living nodes.
std::vector<std::string> first_names(const Membership& state);

}  // namespace lockstep::rendezvous
