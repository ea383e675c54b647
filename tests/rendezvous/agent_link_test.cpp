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
    options.before_attempt = [&] { ++attempts; };
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
  world.coordinator.reset();
  int attempts = 0;
  options.before_attempt = [&] {
    if (++attempts != 3) return;
    world.coordinator = std::make_unique<Coordinator>(world.loop, world.settings,
                                                      Coordinator::Callbacks{.log = [](log::Level, const std::string&) {}});
    world.coordinator->listen(net::ListenSocket::open(std::nullopt, port));
  };
  Agent& agent = world.add(options);
  ASSERT_TRUE(world.until([&] { return agent.round.has_value(); }));
  EXPECT_EQ(attempts, 3);
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
