#include "lockstep/rendezvous/membership.h"

#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

using What = Decision::What;
using namespace std::chrono_literals;

/// A job whose events the test tells, and whose decisions are carried out as the coordinator does.
struct Job {
  explicit Job(int min, int max, int restarts = 0, Backend backend = Backend::C10d) {
    options.min_nodes = min;
    options.max_nodes = max;
    options.max_restarts = restarts;
    options.backend = backend;
  }
  void join(const std::string& name, std::optional<int> wanted = {}) {
    const RankCandidate candidate{.host_name = name, .address = net::Address::loopback_v4(0), .wanted = wanted, .origin = "--node_rank"};
    ASSERT_EQ(join_problem(state, options, candidate).text, "");
    note_joined(now, state, ++last_id, candidate);
  }
  Decision look() const { return decide(now, state, options); }
  /// Decides and applies until there is only waiting; returns what was decided.
  std::vector<What> turn() {
    std::vector<What> done;
    for (Decision decision = look(); decision.what != What::Wait; decision = look()) {
      const Ranks ranks = assign_ranks(state.candidates(), options.max_nodes);
      apply(now, decision, state, &ranks);
      last = decision;
      done.push_back(decision.what);
    }
    return done;
  }
  void fail(uint64_t id, bool consequence = false) {
    note_outcome(state, id, {static_cast<uint32_t>(state.round),
                             Cause{.exit_code = static_cast<int>(id), .consequence = consequence, .text = fmt::format("worker of {}", id)}});
  }
  void succeed(uint64_t id) { note_outcome(state, id, {static_cast<uint32_t>(state.round), {}}); }
  void stopped(uint64_t id) { note_stopped(state, id, {static_cast<uint32_t>(state.round), {}}); }

  MembershipOptions options;
  Membership state;
  Milliseconds now{0};
  uint64_t last_id = 0;
  Decision last;
};
using Decisions = std::vector<What>;

TEST(Gathering, StartsWhenAllAreHere) {
  Job job(3, 3);
  job.join("n1");
  job.join("n2");
  EXPECT_EQ(job.look().reason, "waiting for nodes: 2 of 3 nodes here: n1 (127.0.0.1), n2 (127.0.0.1); missing: 1 node");
  EXPECT_EQ(job.look().left, 600s);
  job.join("n3");
  EXPECT_EQ(job.turn(), Decisions{What::Start});
  EXPECT_EQ(job.state.round, 1);
}

TEST(Gathering, WaitsForALastCallAfterTheMinimum) {
  Job job(1, 3);
  job.join("n1");
  job.now += 20s;
  job.join("n2");
  job.now += 29s;
  EXPECT_EQ(job.look().what, What::Wait);
  EXPECT_EQ(job.look().left, 1s);
  EXPECT_EQ(job.look().reason, "last call for more nodes: 2 of 1 to 3 nodes here: n1 (127.0.0.1), n2 (127.0.0.1)");
  job.now += 1s;
  EXPECT_EQ(job.turn(), Decisions{What::Start});
}

TEST(Gathering, TimesOutNamingWhoIsHere) {
  Job job(2, 2);
  job.join("n1");
  job.now = 600s;
  EXPECT_EQ(job.turn(), Decisions{What::EndFailure});
  EXPECT_EQ(job.last.cause->kind, ErrorKind::Timeout);
  EXPECT_EQ(job.last.cause->text, "not all nodes came within 600.0 s: 1 of 2 nodes here: n1 (127.0.0.1); missing: 1 node. "
                                  "Look at the launchers of the missing nodes, or raise --rdzv_conf join_timeout.");
  EXPECT_EQ(job.turn(), Decisions{}) << "ended is ended";
}

TEST(Gathering, ListsAtMostSixteenNames) {
  Job job(100, 100);
  for (int i = 0; i < 40; ++i) job.join(fmt::format("n{}", i));
  EXPECT_NE(job.look().reason.find("n15 (127.0.0.1) and 24 more; missing: 60 nodes"), std::string::npos) << job.look().reason;
}

TEST(Gathering, StaticNeedsAllRanksAndNamesTheMissing) {
  Job job(1, 3, 0, Backend::Static);
  job.join("n1", 2);
  job.now += 100s;
  EXPECT_EQ(job.look().what, What::Wait) << "no last call under static";
  EXPECT_EQ(job.look().reason, "waiting for nodes: 1 of 3 nodes here: n1 (127.0.0.1); missing: node rank 0, 1");
  EXPECT_EQ(join_problem(job.state, job.options, {.host_name = "n2", .wanted = 2, .origin = "--node_rank"}).reason, RefusalReason::Rank);
  job.join("n2", 0);
  job.join("n3", 1);
  EXPECT_EQ(job.turn(), Decisions{What::Start});
  EXPECT_EQ(job.state.find(1)->group_rank, 2);
}

TEST(Gathering, OneWhoGoesIsForgotten) {
  Job job(2, 2);
  job.join("n1");
  job.join("n2");
  note_lost(job.state, 2, "gone");
  EXPECT_EQ(job.turn(), Decisions{});
  EXPECT_EQ(job.state.nodes.size(), 1U);
  job.join("n3");
  EXPECT_EQ(job.turn(), Decisions{What::Start});
}

TEST(Running, EndsWellWhenAllHaveSucceeded) {
  Job job(2, 2);
  job.join("n1");
  job.join("n2");
  job.turn();
  job.succeed(1);
  EXPECT_EQ(job.turn(), Decisions{});
  job.succeed(2);
  EXPECT_EQ(job.turn(), Decisions{What::EndSuccess});
}

TEST(Running, OutcomesOfAnotherRoundAreIgnored) {
  Job job(1, 1);
  job.join("n1");
  job.turn();
  note_outcome(job.state, 1, {.round = 7, .cause = {}});
  note_outcome(job.state, 99, {.round = 1, .cause = {}});
  EXPECT_EQ(job.turn(), Decisions{});
}

TEST(Stopping, EndsWithTheFirstCauseWhenNoRestartIsLeft) {
  Job job(2, 2);
  job.join("n1");
  job.join("n2");
  job.turn();
  job.fail(2);
  EXPECT_EQ(job.turn(), Decisions{What::StopRound});
  EXPECT_EQ(job.look().reason, "waiting for workers to stop on n1 (127.0.0.1), n2 (127.0.0.1)");
  job.stopped(1);
  EXPECT_EQ(job.turn(), Decisions{});
  job.stopped(2);
  EXPECT_EQ(job.turn(), Decisions{What::EndFailure});
  EXPECT_EQ(job.last.cause->exit_code, 2);
  EXPECT_EQ(job.last.cause->node, "n2");
  EXPECT_EQ(job.last.cause->group_rank, 1);
}

TEST(Stopping, RestartsAreCountedForTheJobAndNeedNoLastCall) {
  Job job(1, 3, 2);
  job.join("n1");
  job.join("n2");
  job.now += 30s;
  ASSERT_EQ(job.turn(), Decisions{What::Start});
  for (int restart = 1; restart <= 2; ++restart) {
    job.fail(static_cast<uint64_t>(restart));
    EXPECT_EQ(job.turn(), Decisions{What::StopRound});
    job.stopped(1);
    job.stopped(2);
    EXPECT_EQ(job.turn(), (Decisions{What::Regather, What::Start}));
    EXPECT_EQ(job.state.restarts, restart);
    EXPECT_EQ(job.state.round, restart + 1);
  }
  job.fail(1);
  job.turn();
  job.stopped(1);
  job.stopped(2);
  EXPECT_EQ(job.turn(), Decisions{What::EndFailure});
}

TEST(Stopping, ALostNodeIsNotWaitedFor) {
  Job job(1, 2, 1);
  job.join("n1");
  job.join("n2");
  job.turn();
  note_lost(job.state, 1, "silent");
  EXPECT_EQ(job.turn(), Decisions{What::StopRound});
  job.stopped(2);
  EXPECT_EQ(job.turn(), (Decisions{What::Regather, What::Start}));
  EXPECT_EQ(job.state.nodes.size(), 1U);
  EXPECT_EQ(job.state.nodes[0].group_rank, 0);
  EXPECT_EQ(job.state.nodes[0].rank.index, 1);
}

TEST(Stopping, TooFewAreLeftUntilAReplacementComes) {
  Job job(2, 2, 1);
  job.join("n1");
  job.join("n2");
  job.turn();
  note_lost(job.state, 1, "silent");
  job.turn();
  job.join("n3");  // while the others still stop
  job.stopped(2);
  EXPECT_EQ(job.turn(), (Decisions{What::Regather, What::Start}));
  EXPECT_EQ(job.state.find(3)->group_rank, 0) << "it takes the gap";

  Job alone(2, 2, 1);
  alone.join("n1");
  alone.join("n2");
  alone.turn();
  note_lost(alone.state, 1, "silent for 5 s");
  alone.turn();
  alone.stopped(2);
  EXPECT_EQ(alone.turn(), Decisions{What::Regather});
  alone.now += 600s;
  EXPECT_EQ(alone.turn(), Decisions{What::EndFailure});
  EXPECT_NE(alone.last.cause->text.find("Why a restart was due: n1 (127.0.0.1) is lost: silent for 5 s"), std::string::npos)
      << alone.last.cause->text;
}

TEST(Stopping, EndsWhenNobodyIsLeft) {
  Job job(2, 2, 3);
  job.join("n1");
  job.join("n2");
  job.turn();
  note_lost(job.state, 1, "silent");
  note_lost(job.state, 2, "silent");
  EXPECT_EQ(job.turn(), Decisions{What::EndFailure});
}

TEST(Stopping, WhoDoesNotStopIsDropped) {
  Job job(2, 2);
  job.join("n1");
  job.join("n2");
  job.turn();
  job.fail(1);
  job.turn();
  job.stopped(1);
  job.now += job.options.stop_timeout;
  EXPECT_EQ(job.turn(), (Decisions{What::Drop, What::EndFailure}));
  EXPECT_EQ(job.last.cause->exit_code, 1) << "the first cause, not the drop";
}

TEST(Cause, AConsequenceIsNotTheFirstCause) {
  Job job(3, 3);
  for (const auto* name : {"n1", "n2", "n3"}) job.join(name);
  job.turn();
  job.fail(1, true);
  job.turn();
  job.fail(2);
  job.fail(3);
  for (uint64_t id = 1; id <= 3; ++id) job.stopped(id);
  EXPECT_EQ(job.turn(), Decisions{What::EndFailure});
  EXPECT_EQ(job.last.cause->exit_code, 2);
}

TEST(Cause, LeavingEndsTheRoundUnlessItsWorkIsDone) {
  Job job(2, 2);
  job.join("n1");
  job.join("n2");
  job.turn();
  job.succeed(1);
  note_left(job.state, 1, {.exit_code = 143, .text = "SIGTERM"});
  EXPECT_EQ(job.turn(), Decisions{});
  note_left(job.state, 2, {.exit_code = 143, .text = "SIGTERM"});
  EXPECT_EQ(job.turn(), Decisions{What::EndFailure});
  EXPECT_EQ(job.last.cause->text, "SIGTERM");
}

TEST(Joining, IsRefusedWhenFullRunningOrOver) {
  Job job(1, 2);
  job.join("n1");
  job.now += 30s;
  job.turn();
  const RankCandidate late{.host_name = "late", .address = net::Address::loopback_v4(0)};
  EXPECT_NE(join_problem(job.state, job.options, late).text.find("the job runs with 1 node: n1 (127.0.0.1)"), std::string::npos);
  job.succeed(1);
  job.turn();
  EXPECT_EQ(join_problem(job.state, job.options, late).text, "the job has ended");
  Job full(1, 1);
  full.join("n1");
  EXPECT_NE(join_problem(full.state, full.options, late).text.find("already has all its 1 node: n1"), std::string::npos);
}

TEST(Silence, IsReportedForgivenAndDeadly) {
  using News = SilenceNews::What;
  Job job(2, 2);
  job.join("n1");
  job.join("n2");
  const auto news = [&] { return check_silence(job.now, job.state, job.options); };
  job.now = 1'499ms;
  EXPECT_TRUE(news().empty());
  job.state.find(2)->last_heard = job.now;
  job.now = 1'500ms;
  EXPECT_EQ(news(), (std::vector<SilenceNews>{{News::Suspect, 1, 1'500ms}}));
  EXPECT_TRUE(news().empty());
  job.now = 1'600ms;
  job.state.find(1)->last_heard = job.now;
  EXPECT_EQ(news(), (std::vector<SilenceNews>{{News::Recovered, 1, 1'600ms}}));
  job.now = 6'499ms;
  EXPECT_EQ(news(), (std::vector<SilenceNews>{{News::Suspect, 1, 4'899ms}, {News::Dead, 2, 5'000ms}}));
}

TEST(ObservedTime, DoesNotCountWhatNobodyObserved) {
  const Clock::time_point start = Clock::now();
  ObservedClock clock(start);
  EXPECT_EQ(clock.advance(start + 100ms), 100ms);
  EXPECT_EQ(clock.advance(start + 3600s), 300ms);
  for (int i = 1; i <= 1000; ++i) clock.advance(start + 3600s + std::chrono::microseconds(500 * i));
  EXPECT_EQ(clock.now(), 800ms) << "fractions of a millisecond add up";
}

TEST(Settings, ADifferenceNamesBothValues) {
  Job job(2, 4, 1);
  Join join{.backend = Backend::C10d, .min_nodes = 2, .max_nodes = 4, .max_restarts = 1};
  EXPECT_EQ(settings_problem(job.options, join), "");
  join.max_nodes = 3;
  EXPECT_EQ(settings_problem(job.options, join), "--nnodes is 2:3 on that node and 2:4 where the nodes meet. Give the same on every node.");
  job.options.backend = Backend::Static;
  join = {.backend = Backend::Static, .min_nodes = 1, .max_nodes = 4, .max_restarts = 1};
  EXPECT_EQ(settings_problem(job.options, join), "") << "static does not look at the minimum";
}

}  // namespace
}  // namespace lockstep::rendezvous
