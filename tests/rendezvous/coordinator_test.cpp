#include "lockstep/rendezvous/coordinator.h"

#include "world.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> hosts(const Round& round) {
  std::vector<std::string> names;
  for (const Member& member : round.members) names.push_back(member.host_name);
  return names;
}

TEST(Coordinator, BeginsARoundWhenAllAreHere) {
  World world(World::options(3, 3));
  auto options = world.agent_options("n10");
  options.join.nproc = 4;
  options.join.store_port = 4444;
  Agent& n10 = world.add(options);
  Agent& n2 = world.add("n2");
  options = world.agent_options("n1");
  options.join.store_port = 1111;
  options.join.role = "trainer";
  Agent& n1 = world.add(options);
  ASSERT_TRUE(world.until([&] { return n10.round && n2.round && n1.round; })) << world.all_lines();

  EXPECT_EQ(hosts(*n1.round), (std::vector<std::string>{"n1", "n2", "n10"})) << "in natural order";
  EXPECT_EQ(n1.rank, 0);
  EXPECT_EQ(n2.rank, 1);
  EXPECT_EQ(n10.rank, 2);
  EXPECT_EQ(n2.round, n1.round);
  EXPECT_EQ(n1.round->number, 1U);
  EXPECT_EQ(n1.round->restarts, 0U);
  EXPECT_EQ(n1.round->master_address, "127.0.0.1");
  EXPECT_EQ(n1.round->master_port, 1111);
  EXPECT_EQ(n1.round->members[2].nproc, 4U);
  EXPECT_EQ(n1.round->members[0].role, "trainer");
  EXPECT_EQ(n1.round->notes,
            std::vector<std::string>{"nodes have unequal numbers of workers: 1 on n1, 1 on n2, 4 on n10"});
}

TEST(Coordinator, WantedRanksDecide) {
  World world(World::options(2, 2));
  auto options = world.agent_options("n1");
  options.join.wanted_rank = 1;
  Agent& n1 = world.add(options);
  Agent& n2 = world.add("n2");
  ASSERT_TRUE(world.until([&] { return n1.round && n2.round; })) << world.all_lines();
  EXPECT_EQ(n1.rank, 1);
  EXPECT_EQ(n2.rank, 0);
}

TEST(Coordinator, EqualRanksAreWarnedOfWithBothHosts) {
  World world(World::options(2, 2));
  for (const auto* name : {"n1", "n2"}) {
    auto options = world.agent_options(name);
    options.join.wanted_rank = 0;
    options.join.rank_origin = "--node_rank";
    world.add(options);
  }
  ASSERT_TRUE(world.until([&] { return world.agents[0]->round && world.agents[1]->round; })) << world.all_lines();
  EXPECT_EQ(world.agents[1]->rank, 1);
  ASSERT_EQ(world.agents[0]->round->notes.size(), 1U);
  EXPECT_NE(world.agents[0]->round->notes[0].find("n1 (127.0.0.1) and n2 (127.0.0.1) both have --node_rank 0"),
            std::string::npos) << world.agents[0]->round->notes[0];
}

TEST(Coordinator, TheHostMayStartLast) {
  World early(World::options(1, 1));
  const uint16_t port = early.coordinator->port();
  auto options = early.agent_options("n1");
  options.status_interval = 50ms;
  early.coordinator.reset();
  Agent& agent = early.add(options);
  ASSERT_TRUE(early.until([&] { return agent.waiting.size() >= 2; }));
  EXPECT_EQ(agent.waiting.back().substr(0, agent.waiting.back().find(';')),
            fmt::format("waiting for the coordinator at 127.0.0.1:{}: 127.0.0.1:{}: connection refused", port, port));

  early.coordinator = std::make_unique<Coordinator>(early.loop, early.settings,
                                                    Coordinator::Callbacks{.log = [](log::Level, const std::string&) {}});
  early.coordinator->listen(net::ListenSocket::open(std::nullopt, port));
  EXPECT_TRUE(early.until([&] { return agent.round.has_value(); }));
}

TEST(Coordinator, AMissingNodeIsNamedWhileWaitingAndAtTheTimeout) {
  auto options = World::options(3, 3);
  options.membership.join_timeout = 400ms;
  options.status_interval = 100ms;
  World world(options);
  world.add("n1");
  world.add("n2");
  ASSERT_TRUE(world.until([&] { return world.all_ended(); }));
  const Agent& n1 = *world.agents[0];
  ASSERT_FALSE(n1.statuses.empty());
  const Status& status = n1.statuses.back();
  EXPECT_EQ(status.reason, "waiting for nodes: 2 of 3 nodes here: n1 (127.0.0.1), n2 (127.0.0.1); missing: 1 node");
  EXPECT_EQ(status.num_present, 2U);
  EXPECT_EQ(status.present, (std::vector<std::string>{"n1 (127.0.0.1)", "n2 (127.0.0.1)"}));
  EXPECT_EQ(status.seconds_left, 0);
  ASSERT_TRUE(n1.end && n1.end->cause);
  EXPECT_EQ(n1.end->cause->kind, ErrorKind::Timeout);
  EXPECT_EQ(n1.end->cause->exit_code, 6);
  EXPECT_NE(n1.end->cause->text.find("not all nodes came within 0.4 s: 2 of 3 nodes here: n1 (127.0.0.1), n2 (127.0.0.1); "
                                     "missing: 1 node."), std::string::npos) << n1.end->cause->text;
}

TEST(Coordinator, TheLastCallBeginsARoundWithFewerNodes) {
  World world(World::options(1, 3));
  const std::vector<Agent*> agents = world.add_all(2);
  EXPECT_EQ(agents[0]->round->members.size(), 2U);
  EXPECT_EQ(world.count_lines("round 1 begins: 2 nodes are here and no other came for 0.1 s"), 1) << world.all_lines();
}

TEST(Coordinator, EndsWellWhenAllSucceeded) {
  World world(World::options(2, 2));
  const std::vector<Agent*> agents = world.add_all(2);
  agents[0]->link->outcome(1, std::nullopt);
  world.turn_for(150ms);
  EXPECT_FALSE(agents[0]->end) << "the other still works";
  agents[1]->link->outcome(1, std::nullopt);
  ASSERT_TRUE(world.until([&] { return world.all_ended() && world.coordinator->is_finished(); })) << world.all_lines();
  for (const Agent* agent : agents) {
    ASSERT_TRUE(agent->end);
    EXPECT_FALSE(agent->end->cause);
    EXPECT_TRUE(agent->link->is_over());
  }
  EXPECT_FALSE(world.coordinator->cause());
}

TEST(Coordinator, AFailureStopsAllAndRestartsWithoutALastCall) {
  auto options = World::options(1, 4, 1);  // room for more: a restart must not wait for them
  World world(options);
  const std::vector<Agent*> agents = world.add_all(3);
  const std::vector<std::string> order = hosts(*agents[0]->round);
  for (Agent* agent : agents) agent->answers_stop = false;
  agents[1]->link->outcome(1, failure(7, "rank 1: exit code 7"));
  ASSERT_TRUE(world.until([&] { return std::all_of(agents.begin(), agents.end(), [](Agent* a) { return a->stops.size() == 1; }); }))
      << world.all_lines();
  EXPECT_TRUE(agents[0]->stops[0].will_restart);
  EXPECT_EQ(agents[0]->stops[0].cause.text, "rank 1: exit code 7");
  EXPECT_EQ(agents[0]->stops[0].cause.node, "n2");
  EXPECT_EQ(agents[0]->stops[0].cause.group_rank, 1);

  for (Agent* agent : agents) agent->round.reset();
  const Clock::time_point answered = Clock::now();
  for (Agent* agent : agents) agent->link->stopped(1);
  ASSERT_TRUE(world.until([&] { return std::all_of(agents.begin(), agents.end(), [](Agent* a) { return a->round.has_value(); }); }))
      << world.all_lines();
  EXPECT_LT(Clock::now() - answered, 50ms) << "the last call alone is 60 ms";
  EXPECT_EQ(agents[0]->round->number, 2U);
  EXPECT_EQ(agents[0]->round->restarts, 1U);
  EXPECT_EQ(hosts(*agents[0]->round), order);

  agents[0]->link->outcome(2, failure(9, "rank 0: exit code 9"));
  for (Agent* agent : agents) agent->answers_stop = true;
  ASSERT_TRUE(world.until([&] { return world.all_ended(); })) << world.all_lines();
  for (const Agent* agent : agents) {
    EXPECT_FALSE(agent->stops.back().will_restart);
    ASSERT_TRUE(agent->end && agent->end->cause);
    EXPECT_EQ(agent->end->cause->exit_code, 9);
  }
}

TEST(Coordinator, TheCauseIsToldRatherThanItsConsequences) {
  World world(World::options(2, 2));
  const std::vector<Agent*> agents = world.add_all(2);
  Cause consequence = failure(5, "a peer is gone");
  consequence.consequence = true;
  agents[1]->answers_stop = false;
  agents[0]->link->outcome(1, consequence);
  ASSERT_TRUE(world.until([&] { return !agents[1]->stops.empty(); }));
  agents[1]->link->stopped(1, failure(139, "rank 1: signal 11"));
  ASSERT_TRUE(world.until([&] { return world.all_ended(); }));
  EXPECT_EQ(agents[0]->end->cause->text, "rank 1: signal 11");
  EXPECT_EQ(agents[0]->end->cause->exit_code, 139);
}

TEST(Coordinator, AnAgentThatIsKilledStopsTheOthersAtOnce) {
  World world(World::options(3, 3));
  const std::vector<Agent*> agents = world.add_all(3);
  const Clock::time_point killed = Clock::now();
  agents[1]->link.reset();
  ASSERT_TRUE(world.until([&] { return agents[0]->end && agents[2]->end; })) << world.all_lines();
  EXPECT_LT(Clock::now() - killed, 2s);
  EXPECT_EQ(agents[0]->end->cause->kind, ErrorKind::Peer);
  EXPECT_EQ(agents[0]->end->cause->exit_code, 5);
  EXPECT_EQ(agents[0]->end->cause->text,
            "n2 (127.0.0.1) is lost: its connection ended (closed by the peer): the launcher there has ended or was killed");
}

TEST(Coordinator, ARestartAfterALossGoesOnWithThoseWhoAreLeft) {
  World world(World::options(2, 3, 1));
  const std::vector<Agent*> agents = world.add_all(3);
  for (Agent* agent : agents) agent->round.reset();
  agents[0]->link.reset();
  ASSERT_TRUE(world.until([&] { return agents[1]->round && agents[2]->round; })) << world.all_lines();
  EXPECT_EQ(hosts(*agents[1]->round), (std::vector<std::string>{"n2", "n3"}));
  EXPECT_EQ(agents[1]->rank, 0);
  EXPECT_EQ(agents[1]->round->members[0].index, 1U) << "the index stays";
}

TEST(Coordinator, ARestartWaitsForAReplacementWhichTakesTheGap) {
  World world(World::options(3, 3, 1));
  const std::vector<Agent*> agents = world.add_all(3);
  for (Agent* agent : agents) agent->round.reset();
  agents[1]->link.reset();
  ASSERT_TRUE(world.until([&] { return !agents[0]->statuses.empty() && agents[0]->statuses.back().num_present == 2; }))
      << world.all_lines();
  Agent& replacement = world.add("n9");
  ASSERT_TRUE(world.until([&] { return replacement.round && agents[0]->round; })) << world.all_lines();
  EXPECT_EQ(hosts(*replacement.round), (std::vector<std::string>{"n1", "n9", "n3"}));
  EXPECT_EQ(replacement.round->restarts, 1U);
}

TEST(Coordinator, LeavingIsToldFromDying) {
  World world(World::options(2, 2));
  const std::vector<Agent*> agents = world.add_all(2);
  agents[1]->link->leave({.kind = ErrorKind::Peer, .exit_code = 143, .text = "n2 got SIGTERM"});
  ASSERT_TRUE(world.until([&] { return agents[0]->end && agents[1]->link->is_over(); })) << world.all_lines();
  EXPECT_EQ(agents[0]->end->cause->text, "n2 got SIGTERM");
  EXPECT_EQ(agents[0]->end->cause->exit_code, 143);
  EXPECT_FALSE(agents[1]->lost);
  EXPECT_EQ(world.count_lines("n2 (127.0.0.1) leaves: n2 got SIGTERM"), 1) << world.all_lines();
  EXPECT_EQ(world.count_lines("is lost"), 0) << world.all_lines();
}

TEST(Coordinator, ANodeMayLeaveBeforeTheRound) {
  World world(World::options(2, 2));
  Agent& n1 = world.add("n1");
  Agent& n2 = world.add("n2");
  Agent& n3 = world.add("n3");
  // Whichever two come first make the round; the third is surplus and told so.
  ASSERT_TRUE(world.until([&] { return n1.lost || n2.lost || n3.lost; })) << world.all_lines();
  World other(World::options(2, 2));
  Agent& first = other.add("first");
  ASSERT_TRUE(other.until([&] { return first.joined && other.coordinator->membership().num_living() == 1; }));
  first.link->leave({.text = "SIGINT"});
  ASSERT_TRUE(other.until([&] { return other.coordinator->membership().num_living() == 0; }));
  other.add_all(2);
  EXPECT_EQ(other.agents[1]->round->members.size(), 2U) << other.all_lines();
}

TEST(Coordinator, ANodeThatDiesAfterItsSuccessHurtsNobody) {
  World world(World::options(2, 2));
  const std::vector<Agent*> agents = world.add_all(2);
  agents[0]->link->outcome(1, std::nullopt);
  world.turn_for(50ms);
  agents[0]->link.reset();
  world.turn_for(150ms);
  EXPECT_TRUE(agents[1]->stops.empty()) << world.all_lines();
  agents[1]->link->outcome(1, std::nullopt);
  ASSERT_TRUE(world.until([&] { return agents[1]->end.has_value(); }));
  EXPECT_FALSE(agents[1]->end->cause);
}

TEST(Coordinator, AbortEndsTheJobForAllWithoutARestart) {
  World world(World::options(2, 2, 5));
  const std::vector<Agent*> agents = world.add_all(2);
  world.coordinator->abort({.exit_code = 130, .text = "interrupted"});
  ASSERT_TRUE(world.until([&] { return world.all_ended() && world.coordinator->is_finished(); }));
  EXPECT_EQ(agents[0]->end->cause->exit_code, 130);
}

TEST(Coordinator, ANodeThatDoesNotStopIsGivenUp) {
  auto options = World::options(2, 2);
  options.membership.stop_timeout = 200ms;
  World world(options);
  const std::vector<Agent*> agents = world.add_all(2);
  agents[1]->answers_stop = false;
  agents[0]->link->outcome(1, failure(3, "rank 0: exit code 3"));
  ASSERT_TRUE(world.until([&] { return world.all_ended(); })) << world.all_lines();
  EXPECT_EQ(agents[0]->end->cause->exit_code, 3);
  EXPECT_EQ(world.count_lines("n2 (127.0.0.1) is lost: its workers had not stopped after 0.2 s"), 1) << world.all_lines();
}

TEST(Coordinator, ALateNodeOfAJobThatNeverHadAllNodesIsToldHowItEnded) {
  World world(World::options(2, 2));
  world.coordinator->abort({.kind = ErrorKind::Environment, .exit_code = 4, .node = "n0", .text = "no room in TMPDIR"});
  Agent& late = world.add("n1");
  ASSERT_TRUE(world.until([&] { return world.all_ended() && !world.coordinator->has_connections(); })) << world.all_lines();
  ASSERT_TRUE(late.end) << late.lost->what();
  EXPECT_EQ(late.end->cause->text, "no room in TMPDIR");
  EXPECT_EQ(late.end->cause->exit_code, 4);
  EXPECT_EQ(world.coordinator->num_told_late(), 1);
}

TEST(Coordinator, ALateNodeIsToldThoughWorkersAreStillStopping) {
  World world(World::options(1, 2));
  Agent& n1 = *world.add_all(1)[0];
  n1.answers_stop = false;
  n1.link->outcome(1, failure(7, "rank 0: exit code 7"));
  ASSERT_TRUE(world.until([&] { return !n1.stops.empty(); })) << world.all_lines();
  Agent& late = world.add("n2");
  ASSERT_TRUE(world.until([&] { return late.end || late.lost; })) << world.all_lines();
  ASSERT_TRUE(late.end) << late.lost->what();
  EXPECT_EQ(late.end->cause->text, "rank 0: exit code 7");
  EXPECT_EQ(late.end->cause->exit_code, 7);
  EXPECT_FALSE(n1.end) << "the workers there have their time";
  n1.link->stopped(1);
  ASSERT_TRUE(world.until([&] { return world.all_ended() && world.coordinator->is_finished(); }));
}

TEST(Coordinator, WhoComesWhenAJobWithAllItsNodesEndsIsOfTheNextOne) {
  World world(World::options(2, 2));
  const std::vector<Agent*> agents = world.add_all(2);
  agents[1]->answers_stop = false;
  agents[0]->link->outcome(1, failure(7, "rank 0: exit code 7"));
  ASSERT_TRUE(world.until([&] { return !agents[1]->stops.empty(); }));
  AgentLink::Options options = world.agent_options("n3");
  options.status_interval = 50ms;
  Agent& next = world.add(options);
  ASSERT_TRUE(world.until([&] { return !next.waiting.empty() && next.waiting.back().find("just ending") != std::string::npos; }))
      << world.all_lines();
  EXPECT_FALSE(next.end || next.lost);
}

TEST(Coordinator, NodesOfOneNameAreToldApartByTheirAddresses) {
  World world(World::options(2, 2));
  for (const char* address : {"10.0.0.1", "10.0.0.2"}) {
    AgentLink::Options options = world.agent_options("node");
    options.join.addresses = {address};
    world.add(options);
  }
  ASSERT_TRUE(world.until([&] { return world.agents[0]->round && world.agents[1]->round; })) << world.all_lines();
  Agent& second = *world.agents[world.agents[0]->rank == 1 ? 0 : 1];
  second.link->outcome(1, failure(7, "rank 1: exit code 7"));
  ASSERT_TRUE(world.until([&] { return world.all_ended(); })) << world.all_lines();
  EXPECT_EQ(world.agents[0]->end->cause->node, "node (10.0.0.2)");
  EXPECT_EQ(world.agents[0]->end->cause->group_rank, 1);
}

}  // namespace
}  // namespace lockstep::rendezvous
