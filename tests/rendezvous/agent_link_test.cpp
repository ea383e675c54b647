#include "lockstep/rendezvous/agent_link.h"

#include "world.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

/// A program at a port that does what the test says with each connection.
struct Foreign {
  using OnAccept = std::function<void(net::BufferedSocket&)>;
  Foreign(net::EventLoop& loop, OnAccept on_accept)
      : listener(
            loop, net::ListenSocket::open(net::Address::loopback_v4(0), 0),
            [this, &loop, on_accept](UniqueFd fd, const net::Address&) {
              sockets.push_back(std::make_unique<net::BufferedSocket>(loop, std::move(fd), net::BufferedSocket::Limits{},
                                                                      net::BufferedSocket::Callbacks{}));
              on_accept(*sockets.back());
            },
            [](const std::string&) {}) {}
  std::vector<std::unique_ptr<net::BufferedSocket>> sockets;
  net::Listener listener;
};

AgentLink::Options towards(const World& world, uint16_t port) {
  AgentLink::Options options = world.agent_options("n1");
  options.endpoint.port = port;
  options.foreign_timeout = 200ms;
  options.status_interval = 50ms;
  options.attempt_timeout = 100ms;
  return options;
}

TEST(AgentLink, AForeignProgramThatTalksIsNamedAndSoonAnError) {
  World world(World::options(1, 1));
  Foreign http(world.loop, [](net::BufferedSocket& socket) { socket.send("HTTP/1.1 400 Bad Request\r\n\r\n"); });
  Agent& agent = world.add(towards(world, http.listener.port()));
  ASSERT_TRUE(world.until([&] { return agent.lost.has_value(); }));
  EXPECT_EQ(agent.lost->kind(), ErrorKind::Environment);
  EXPECT_EQ(std::string(agent.lost->what()),
            fmt::format("another program has the port of the endpoint 127.0.0.1:{0}: 127.0.0.1:{0} is no coordinator of "
                        "lockstep, it said: HTTP/1.1 400 Bad Request????. Choose another port for --rdzv_endpoint (on its "
                        "host, ss -ltnp 'sport = :{0}' shows the program).", http.listener.port()));
  ASSERT_FALSE(agent.waiting.empty());
  EXPECT_NE(agent.waiting[0].find("is no coordinator of lockstep, it said: HTTP"), std::string::npos) << agent.waiting[0];
}

TEST(AgentLink, ARelayThatClosesIsTriedUntilTheTimeout) {
  // A port that is forwarded to a host which is not up yet accepts and closes.
  World world(World::options(1, 1));
  Foreign relay(world.loop, [](net::BufferedSocket& socket) { socket.close(); });
  AgentLink::Options options = towards(world, relay.listener.port());
  options.join_timeout = 700ms;
  Agent& agent = world.add(options);
  ASSERT_TRUE(world.until([&] { return agent.lost.has_value(); }));
  EXPECT_EQ(agent.lost->kind(), ErrorKind::Timeout);
  EXPECT_NE(std::string(agent.lost->what()).find("accepted the connection and ended it"), std::string::npos)
      << agent.lost->what();
}

TEST(AgentLink, OnTheEndpointsOwnHostThatIsAForeignProgramToo) {
  World world(World::options(1, 1));
  for (const bool closes : {true, false}) {
    Foreign other(world.loop, [&](net::BufferedSocket& socket) {
      if (closes) socket.close();
    });
    AgentLink::Options options = towards(world, other.listener.port());
    int attempts = 0;
    options.before_attempt = [&]() -> std::optional<net::Endpoint> {
      ++attempts;
      return std::nullopt;
    };
    Agent& agent = world.add(options);
    ASSERT_TRUE(world.until([&] { return agent.lost.has_value(); }));
    EXPECT_EQ(agent.lost->kind(), ErrorKind::Environment) << agent.lost->what();
    EXPECT_GE(attempts, 2);
    EXPECT_TRUE(world.until([&] { return agent.link->is_over(); }));
  }
}

TEST(AgentLink, ItsOwnerMayBecomeTheHostBetweenAttempts) {
  World world(World::options(1, 1));
  const uint16_t port = world.coordinator->port();
  AgentLink::Options options = towards(world, port);
  // A name that only the owner of it knows: from then on the own coordinator is reached by its address.
  options.endpoint.host = "own-name";
  options.lookup = [port](const net::Endpoint& endpoint) {
    if (endpoint.host == "own-name") return net::Resolved{.outcome = net::Resolved::Outcome::UnknownName, .problem = "unknown"};
    return net::Resolved{.outcome = net::Resolved::Outcome::Found, .addresses = {net::Address::loopback_v4(port)}};
  };
  world.coordinator.reset();
  int attempts = 0;
  options.before_attempt = [&]() -> std::optional<net::Endpoint> {
    if (++attempts != 3) return std::nullopt;
    world.coordinator = std::make_unique<Coordinator>(world.loop, world.settings,
                                                      Coordinator::Callbacks{.log = [](log::Level, const std::string&) {}});
    world.coordinator->listen(net::ListenSocket::open(std::nullopt, port));
    return net::Endpoint{"127.0.0.1", port};
  };
  Agent& agent = world.add(options);
  ASSERT_TRUE(world.until([&] { return agent.round.has_value(); }));
  EXPECT_EQ(attempts, 3);
}

TEST(AgentLink, WaitsForAJobAtTheEndpointThatIsAboutToEnd) {
  // One of its nodes has failed and the other one's workers take their time.
  World last(World::options(2, 2));
  const std::vector<Agent*> nodes = last.add_all(2);
  nodes[1]->answers_stop = false;
  nodes[0]->link->outcome(1, failure(7, "n1: rank 0: exit code 7"));
  ASSERT_TRUE(last.until([&] { return !nodes[1]->stops.empty(); })) << last.all_lines();
  const uint16_t port = last.coordinator->port();

  Coordinator::Options next = World::options(1, 1);
  next.run_id = "job-2";
  next.token = net::Token::make();
  World world(next);
  AgentLink::Options options = world.agent_options("n1");
  options.endpoint.port = port;
  options.status_interval = 50ms;
  Agent& agent = world.add(options);
  const auto both_until = [&](const std::function<bool()>& done) {
    return world.until([&] {
      last.loop.run_once(1ms);
      world.loop.run_once(1ms);
      return done();
    });
  };
  ASSERT_TRUE(both_until([&] {
    return !agent.waiting.empty() && agent.waiting.back().find("refused this node: the job here is just ending") != std::string::npos;
  }));
  EXPECT_FALSE(agent.lost);
  nodes[1]->link->stopped(1);
  ASSERT_TRUE(both_until([&] { return nodes[1]->end && last.coordinator->is_finished(); }));
  last.coordinator.reset();
  world.coordinator.reset();
  world.coordinator = std::make_unique<Coordinator>(world.loop, next,
                                                    Coordinator::Callbacks{.log = [](log::Level, const std::string&) {}});
  world.coordinator->listen(net::ListenSocket::open(std::nullopt, port));
  ASSERT_TRUE(both_until([&] { return agent.round.has_value(); }));
}

TEST(AgentLink, NamesAreLookedUpAgainUntilTheyAreKnown) {
  World world(World::options(1, 1));
  AgentLink::Options options = towards(world, world.coordinator->port());
  options.endpoint.host = "n0";
  // Called in a thread of its own, one at a time.
  const auto calls = std::make_shared<std::atomic<int>>(0);
  options.lookup = [calls](const net::Endpoint& endpoint) {
    if (++*calls < 3) return net::Resolved{.outcome = net::Resolved::Outcome::UnknownName, .problem = "the name 'n0' is unknown"};
    return net::Resolved{.outcome = net::Resolved::Outcome::Found, .addresses = {net::Address::loopback_v4(endpoint.port)}};
  };
  Agent& agent = world.add(options);
  ASSERT_TRUE(world.until([&] { return agent.round.has_value(); }));
  EXPECT_EQ(*calls, 3);
}

TEST(AgentLink, ALookupThatHangsEndsWithTheJoinTimeoutAndIsTold) {
  World world(World::options(1, 1));
  AgentLink::Options options = towards(world, 1);
  options.endpoint.host = "n0";
  options.join_timeout = 200ms;
  std::promise<void> release;
  options.lookup = [released = release.get_future().share()](const net::Endpoint&) {
    released.wait();
    return net::Resolved{};
  };
  Agent& agent = world.add(options);
  ASSERT_TRUE(world.until([&] { return agent.lost.has_value(); }));
  EXPECT_EQ(agent.lost->kind(), ErrorKind::Timeout);
  ASSERT_FALSE(agent.waiting.empty());
  EXPECT_NE(agent.waiting[0].find("the look-up of 'n0' has not been answered yet"), std::string::npos) << agent.waiting[0];
  release.set_value();
}

TEST(AgentLink, TellsBothEndsOfItsConnection) {
  World world(World::options(1, 1));
  Agent& agent = world.add("n1");
  ASSERT_TRUE(world.until([&] { return agent.round.has_value(); }));
  EXPECT_EQ(agent.link->peer(), net::Address::loopback_v4(world.coordinator->port()));
  EXPECT_TRUE(agent.link->local()->is_loopback());
  EXPECT_TRUE(world.coordinator->is_member_address(net::Address::loopback_v4(77)));
  EXPECT_FALSE(world.coordinator->is_member_address(net::Address::parse("10.0.0.1", 77).value()));
}

TEST(AgentLink, WorksOverIPv6) {
  World world(World::options(1, 1));
  AgentLink::Options options = world.agent_options("n1");
  options.endpoint.host = "::1";
  Agent& agent = world.add(options);
  ASSERT_TRUE(world.until([&] { return agent.round.has_value(); }));
  EXPECT_EQ(agent.round->master_address, "::1");
  EXPECT_EQ(agent.link->peer(), net::Address::loopback_v6(world.coordinator->port()));
}

TEST(AgentLink, TakesTheRoundOfThousandsOfNodes) {
  constexpr uint32_t kNodes = 8'000;
  net::EventLoop loop;
  Round round{.number = 1};
  const SessionRules rules{.run_id = "job-1", .max_round_bytes = max_round_bytes(kNodes)};
  Session::Callbacks callbacks;
  callbacks.on_join = [&](Session& session, const Join&) {
    for (uint64_t node = 0; node < kNodes; ++node) {
      round.members.push_back({.node = node, .host_name = fmt::format("rack-{}-node-{}.cluster.example", node / 40, node % 40),
                               .address = "10.200.100.101", .nproc = 8, .role = "default",
                               .addresses = {"10.200.100.101", "10.201.100.101", "fd00:1234:5678:9abc::1001"}});
    }
    round.members.back().node = session.id();
    const std::string frame = encode(round, rules.max_round_bytes);
    EXPECT_GT(frame.size(), kMaxPayloadBytes);
    session.send_news(frame, news_copy(round, frame));
  };
  std::unique_ptr<Session> session;
  const net::Listener listener(
      loop, net::ListenSocket::open(net::Address::loopback_v4(0), 0),
      [&](UniqueFd fd, const net::Address& peer) {
        session = std::make_unique<Session>(loop, std::move(fd), peer, kNodes + 1, rules, callbacks);
      },
      [](const std::string&) {});
  AgentLink::Options options;
  options.endpoint = {"127.0.0.1", listener.port()};
  options.run_id = "job-1";
  options.join.max_nodes = kNodes;
  std::optional<Round> taken;
  int rank = -1;
  AgentLink link(loop, options,
                 {.on_round = [&](const Round& given, int group_rank) {
                   taken = given;
                   rank = group_rank;
                 },
                 .on_stop = {}, .on_end = {}, .on_lost = [](ErrorKind, const std::string& text) { ADD_FAILURE() << text; }});
  const Deadline deadline = Deadline::in(10s);
  while (!taken && !deadline.passed()) loop.run_once(deadline.remaining());
  ASSERT_TRUE(taken);
  EXPECT_EQ(*taken, round);
  EXPECT_EQ(rank, static_cast<int>(kNodes) - 1);
}

TEST(AgentLink, MayLeaveBeforeItHasJoined) {
  World world(World::options(1, 1));
  Agent& agent = world.add(towards(world, 1));
  world.loop.run_once(0ms);
  agent.link->leave({.text = "SIGINT"});
  ASSERT_TRUE(world.until([&] { return agent.link->is_over(); }));
  EXPECT_FALSE(agent.lost);
}

TEST(AgentLink, MethodsAfterTheEndDoNothing) {
  World world(World::options(1, 1));
  Agent& agent = world.add("n1");
  ASSERT_TRUE(world.until([&] { return agent.round.has_value(); }));
  agent.link->outcome(1, std::nullopt);
  ASSERT_TRUE(world.until([&] { return agent.end.has_value(); }));
  agent.link->outcome(1, std::nullopt);
  agent.link->stopped(1);
  agent.link->leave({});
  EXPECT_TRUE(world.until([&] { return agent.link->is_over(); }));
}

}  // namespace
}  // namespace lockstep::rendezvous
