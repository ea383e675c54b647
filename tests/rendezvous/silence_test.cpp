#include "lockstep/rendezvous/agent_link.h"
#include "lockstep/rendezvous/coordinator.h"

#include "world.h"

#include <gtest/gtest.h>

#include <thread>

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

/// Two loops: `world` has the coordinator and one agent, `far` another agent whose loop the test may stop.
struct TwoHosts {
  explicit TwoHosts(Coordinator::Options options) : world(options) {
    near = &world.add("near");
    AgentLink::Callbacks callbacks;
    callbacks.on_round = [this](const Round& round, int) { far_round = round; };
    callbacks.on_stop = [this](const Stop& stop) { far_link->stopped(stop.round); };
    callbacks.on_end = [](const End&) {};
    callbacks.on_waiting = [this](const std::string& line) { far_waiting.push_back(line); };
    callbacks.on_lost = [this](ErrorKind kind, const std::string& text) { far_lost.emplace(kind, text); };
    auto link_options = world.agent_options("far");
    link_options.suspect = options.membership.suspect;
    link_options.dead = options.membership.dead;
    far_link = std::make_unique<AgentLink>(far, link_options, callbacks);
    EXPECT_TRUE(both_until([&] { return near->round && far_round; })) << world.all_lines();
  }
  bool both_until(const std::function<bool()>& done) {
    return world.until([&] {
      far.run_once(1ms);
      world.loop.run_once(1ms);
      return done();
    });
  }
  static Coordinator::Options options(int max_restarts = 0) {
    Coordinator::Options options = World::options(2, 2, max_restarts);
    options.membership.suspect = 400ms;
    options.membership.dead = 900ms;
    return options;
  }

  World world;
  net::EventLoop far;
  Agent* near = nullptr;
  std::unique_ptr<AgentLink> far_link;
  std::optional<Round> far_round;
  std::vector<std::string> far_waiting;
  std::optional<Error> far_lost;
};

TEST(Silence, OfANodeIsSuspectThenDeath) {
  TwoHosts hosts(TwoHosts::options());
  // The far loop does not turn any more: its connection stays open and says nothing, as behind a cut cable.
  ASSERT_TRUE(hosts.world.until([&] { return hosts.near->end.has_value(); })) << hosts.world.all_lines();
  EXPECT_EQ(hosts.world.count_lines("far (127.0.0.1) has been silent for 0."), 1) << hosts.world.all_lines();
  const std::string& text = hosts.near->end->cause->text;
  EXPECT_TRUE(text.starts_with("far (127.0.0.1) is lost: silent for 0.9 s: its network is cut") ||
              text.starts_with("far (127.0.0.1) is lost: silent for 1.0 s: its network is cut")) << text;
}

TEST(Silence, AShortOneIsForgiven) {
  TwoHosts hosts(TwoHosts::options());
  ASSERT_TRUE(hosts.world.until([&] { return hosts.world.count_lines("far (127.0.0.1) has been silent") == 1; }));
  ASSERT_TRUE(hosts.both_until([&] { return hosts.world.count_lines("far (127.0.0.1) is heard again") == 1; }))
      << hosts.world.all_lines();
  EXPECT_TRUE(hosts.near->stops.empty());
}

TEST(Silence, OfTheCoordinatorIsNoticedByTheAgent) {
  TwoHosts hosts(TwoHosts::options());
  const Deadline deadline = Deadline::in(10s);
  while (!hosts.far_lost && !deadline.passed()) hosts.far.run_once(10ms);
  ASSERT_TRUE(hosts.far_lost);
  EXPECT_EQ(hosts.far_lost->kind(), ErrorKind::Peer);
  EXPECT_NE(std::string(hosts.far_lost->what()).find("nothing was heard from the coordinator at 127.0.0.1:"),
            std::string::npos) << hosts.far_lost->what();
  ASSERT_EQ(hosts.far_waiting.size(), 1U);
  EXPECT_NE(hosts.far_waiting[0].find("has been silent for"), std::string::npos);
}

TEST(Silence, AStoppedCoordinatorBlamesNobody) {
  TwoHosts hosts(TwoHosts::options());
  // Neither loop turns for longer than it takes to die: both sides were stopped, nobody saw the other being silent.
  const Deadline pause = Deadline::in(1'200ms);
  hosts.far.run_once(0ms);
  std::this_thread::sleep_until(pause.when());
  for (int i = 0; i < 100; ++i) {
    hosts.world.loop.run_once(1ms);
    hosts.far.run_once(1ms);
  }
  EXPECT_EQ(hosts.world.count_lines("is lost"), 0) << hosts.world.all_lines();
  EXPECT_FALSE(hosts.far_lost);
}

TEST(Silence, TheLossOfTheCoordinatorIsToldAtOnce) {
  TwoHosts hosts(TwoHosts::options());
  hosts.world.coordinator.reset();
  ASSERT_TRUE(hosts.both_until([&] { return hosts.far_lost && hosts.near->lost; }));
  EXPECT_EQ(hosts.far_lost->kind(), ErrorKind::Peer);
  EXPECT_NE(std::string(hosts.far_lost->what()).find("the launcher on that host has ended or was killed"), std::string::npos)
      << hosts.far_lost->what();
}

/// The agent "far" comes through a relay, whose connection can be stopped and whose datagrams can be lost either way.
struct Relayed {
  explicit Relayed(Coordinator::Options options = TwoHosts::options(), bool datagrams_pass = true) : world(std::move(options)) {
    to_coordinator = datagrams_pass;
    world.add("near");
    auto link_options = world.agent_options("far");
    link_options.endpoint.port = relay.port();
    link_options.suspect = world.settings.membership.suspect;
    link_options.dead = world.settings.membership.dead;
    datagram_relay.start(loop, [this](std::string_view bytes, const net::Address& from) { pass_datagram(bytes, from); });
    far = &world.add(link_options);
    EXPECT_TRUE(turn([&] { return far->round && (!datagrams_pass || num_from_coordinator > 0); })) << world.all_lines();
  }
  bool turn(const std::function<bool()>& done) {
    return world.until([&] {
      loop.run_once(1ms);
      world.loop.run_once(1ms);
      return done();
    });
  }
  void accept(UniqueFd fd) {
    const auto end = [&](UniqueFd of, std::unique_ptr<net::BufferedSocket>& from, std::unique_ptr<net::BufferedSocket>& to) {
      return std::make_unique<net::BufferedSocket>(
          loop, std::move(of), net::BufferedSocket::Limits{},
          net::BufferedSocket::Callbacks{.on_bytes = [&] { pass_bytes(*from, *to); }, .on_end = {}});
    };
    inside = end(world.connect_raw(), inside, outside);
    outside = end(std::move(fd), outside, inside);
  }
  /// For good: not even the end of the connection is seen.
  void stall_connection() {
    stalled.push_back(inside->release());
    stalled.push_back(outside->release());
  }
  void pass_bytes(net::BufferedSocket& from, net::BufferedSocket& to) const {
    if (!connection_passes) return;
    to.send(from.in());
    from.consume(from.in().size());
  }
  void pass_datagram(std::string_view bytes, const net::Address& from) {
    const net::Address coordinator = net::Address::loopback_v4(world.coordinator->port());
    const bool from_coordinator = from == coordinator;
    if (from_coordinator) last_of_coordinator = bytes;
    if (!from_coordinator) agent_address = from;
    int& seen = from_coordinator ? num_from_coordinator : num_from_agent;
    if (++seen % lose_every == 0) return;
    if (from_coordinator ? to_agent : to_coordinator) {
      datagram_relay.send_to(bytes, from_coordinator ? agent_address.value() : coordinator);
    }
  }

  World world;
  net::EventLoop loop;
  std::unique_ptr<net::BufferedSocket> inside;
  std::unique_ptr<net::BufferedSocket> outside;
  std::vector<UniqueFd> stalled;
  net::Listener relay{loop, net::ListenSocket::open(net::Address::loopback_v4(0), 0),
                      [this](UniqueFd fd, const net::Address&) { accept(std::move(fd)); }, [](const std::string&) {}};
  net::DatagramSocket datagram_relay = net::DatagramSocket::open(relay.local()).value();
  std::optional<net::Address> agent_address;
  std::string last_of_coordinator;
  Agent* far = nullptr;
  bool connection_passes = true;
  bool to_agent = true;
  bool to_coordinator = true;
  int lose_every = 1'000'000;
  int num_from_agent = 0;
  int num_from_coordinator = 0;
};

TEST(Silence, DatagramsAloneKeepANodeAliveThoughAThirdIsLost) {
  Relayed relayed;
  relayed.connection_passes = false;
  relayed.lose_every = 3;
  const int before = relayed.num_from_agent;
  const Deadline while_stopped = Deadline::in(2'000ms);
  ASSERT_TRUE(relayed.turn([&] { return while_stopped.passed(); }));
  EXPECT_GE(relayed.num_from_agent - before, 8);
  EXPECT_EQ(relayed.world.count_lines("far (127.0.0.1) is lost"), 0) << relayed.world.all_lines();
  EXPECT_FALSE(relayed.far->lost) << relayed.far->lost->what();
}

TEST(Silence, TheEndOfAJobIsToldByDatagramsWhereTheConnectionStalls) {
  Relayed relayed;
  Agent& near = *relayed.world.agents[0];
  near.link->outcome(1, std::nullopt);
  relayed.stall_connection();
  relayed.lose_every = 3;
  const Clock::time_point stalled = Clock::now();
  relayed.far->link->outcome(1, std::nullopt);
  ASSERT_TRUE(relayed.turn([&] { return near.end && relayed.far->end; })) << relayed.world.all_lines();
  EXPECT_FALSE(relayed.far->end->cause);
  ASSERT_TRUE(relayed.turn([&] { return relayed.world.coordinator->is_finished(); }));
  EXPECT_LT(Clock::now() - stalled, 2'800ms) << "the coordinator waits 3 s for connections that nobody closes";
  EXPECT_EQ(relayed.world.count_lines("far (127.0.0.1) is lost"), 0) << relayed.world.all_lines();
}

TEST(Silence, ALongerWaitForANodeAfterTheEndIsSaid) {
  Coordinator::Options options = TwoHosts::options();
  options.quiet_farewell = 200ms;
  Relayed relayed(options);
  relayed.far->link->outcome(1, std::nullopt);
  ASSERT_TRUE(relayed.turn([&] { return relayed.world.coordinator->membership().nodes[1].succeeded; }));
  relayed.stall_connection();
  relayed.to_agent = false;
  relayed.to_coordinator = false;
  relayed.world.agents[0]->link->outcome(1, std::nullopt);
  ASSERT_TRUE(relayed.turn([&] { return relayed.world.count_lines("the job has ended well; waiting up to") == 1; }))
      << relayed.world.all_lines();
  EXPECT_EQ(relayed.world.count_lines(" s for far (127.0.0.1) to take note of it"), 1) << relayed.world.all_lines();
}

TEST(Silence, BlockedDatagramsAreSaidOnce) {
  Coordinator::Options options = TwoHosts::options();
  options.udp_patience = 300ms;
  Relayed blocked(options, false);
  const std::string line = fmt::format("UDP port {} is blocked on the way from far (127.0.0.1) (a firewall?): no datagram came in "
                                       "0.3 s, where TCP passes.", blocked.world.coordinator->port());
  ASSERT_TRUE(blocked.turn([&] { return blocked.world.count_lines(line) == 1; })) << blocked.world.all_lines();
  const int before = blocked.num_from_agent;
  ASSERT_TRUE(blocked.turn([&] { return blocked.num_from_agent >= before + 4; }));
  EXPECT_EQ(blocked.world.count_lines("UDP"), 1) << blocked.world.all_lines();

  Relayed open(options);
  const int seen = open.num_from_agent;
  ASSERT_TRUE(open.turn([&] { return open.num_from_agent >= seen + 4; }));
  EXPECT_EQ(open.world.count_lines("UDP"), 0) << open.world.all_lines();
}

TEST(Silence, StopAndRoundComeOnceThoughTheConnectionBringsThemAgain) {
  Relayed relayed(TwoHosts::options(1));
  Agent& near = *relayed.world.agents[0];
  relayed.connection_passes = false;
  const std::string reason = std::string(5'000, 'a') + " the reason";
  near.link->outcome(1, failure(7, reason));
  ASSERT_TRUE(relayed.turn([&] { return relayed.far->round && relayed.far->round->number == 2; })) << relayed.world.all_lines();
  ASSERT_EQ(relayed.far->stops.size(), 1U);
  EXPECT_TRUE(relayed.far->stops[0].cause.text.ends_with(" the reason"));
  // The connection goes on with all that it has kept.
  relayed.connection_passes = true;
  relayed.pass_bytes(*relayed.inside, *relayed.outside);
  relayed.pass_bytes(*relayed.outside, *relayed.inside);
  near.link->outcome(2, std::nullopt);
  relayed.far->link->outcome(2, std::nullopt);
  ASSERT_TRUE(relayed.turn([&] { return near.end && relayed.far->end; })) << relayed.world.all_lines();
  EXPECT_FALSE(relayed.far->end->cause) << relayed.far->end->cause->text;
  EXPECT_EQ(relayed.far->stops.size(), 1U);
  EXPECT_EQ(relayed.far->round->number, 2U);
}

TEST(Silence, ANodeThatLeavesIsNotTakenForLostWhereTheConnectionStalls) {
  Relayed relayed;
  relayed.stall_connection();
  relayed.lose_every = 3;
  relayed.far->link->outcome(1, failure(143, "far: stopped by SIGTERM"));
  relayed.far->link->leave(failure(143, "stopped by SIGTERM"));
  ASSERT_TRUE(relayed.turn([&] { return relayed.world.count_lines("far (127.0.0.1) leaves: stopped by SIGTERM") == 1; }))
      << relayed.world.all_lines();
  ASSERT_TRUE(relayed.turn([&] { return relayed.far->link->is_over(); }));
  EXPECT_EQ(relayed.world.count_lines("is lost"), 0) << relayed.world.all_lines();
}

TEST(Silence, WhoSeesTheDatagramsOfAJobWithATokenCannotSpeakByThem) {
  Coordinator::Options options = TwoHosts::options();
  options.token = net::Token::make();
  Relayed relayed(options);
  const auto seen = decode_sealed(relayed.last_of_coordinator);
  ASSERT_TRUE(seen);
  const std::string key(seen->beat_key);
  const net::Address coordinator = net::Address::loopback_v4(relayed.world.coordinator->port());
  const int before = relayed.num_from_coordinator;
  for (const std::string& sealed_with : {key, std::string(32, 'x')}) {
    relayed.datagram_relay.send_to(seal({Sign::AgentFarewell, key, 1'000'000}, sealed_with), coordinator);
    relayed.datagram_relay.send_to(seal({Sign::CoordinatorBeat, key, 1'000'000, 0, 1, encode(End{})}, sealed_with),
                                   relayed.agent_address.value());
  }
  ASSERT_TRUE(relayed.turn([&] { return relayed.num_from_coordinator >= before + 5; }));
  EXPECT_EQ(relayed.world.count_lines("is lost"), 0) << relayed.world.all_lines();
  EXPECT_FALSE(relayed.far->end);
  EXPECT_FALSE(relayed.far->lost);
}

TEST(Silence, WherePacketsVanishOneWayTheOtherSideIsTold) {
  Relayed deaf;
  deaf.connection_passes = false;
  deaf.to_agent = false;
  ASSERT_TRUE(deaf.turn([&] { return deaf.far->lost.has_value(); })) << deaf.world.all_lines();
  EXPECT_NE(std::string(deaf.far->lost->what()).find("nothing was heard from the coordinator"), std::string::npos);
  const Clock::time_point gave_up = Clock::now();
  ASSERT_TRUE(deaf.turn([&] { return deaf.world.agents[0]->end.has_value(); })) << deaf.world.all_lines();
  EXPECT_LT(Clock::now() - gave_up, 400ms) << "well before a silence of its own";
  EXPECT_EQ(deaf.world.agents[0]->end->cause->text,
            "far (127.0.0.1) is lost: it has not heard the coordinator for so long that it gave up: packets to it do not "
            "arrive");

  Relayed mute;
  mute.connection_passes = false;
  mute.to_coordinator = false;
  ASSERT_TRUE(mute.turn([&] { return mute.far->lost.has_value(); })) << mute.world.all_lines();
  EXPECT_GE(mute.world.count_lines("far (127.0.0.1) is lost: silent for"), 1) << mute.world.all_lines();
  EXPECT_NE(std::string(mute.far->lost->what()).find("has not heard this node for so long that it gave it up"),
            std::string::npos) << mute.far->lost->what();
}

}  // namespace
}  // namespace lockstep::rendezvous
