#include "lockstep/net/buffered_socket.h"
#include "lockstep/net/connect.h"
#include "lockstep/net/datagram.h"
#include "lockstep/net/listen.h"

#include "lockstep/base/error.h"
#include "turning.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <vector>

namespace lockstep::net {
namespace {

using namespace std::chrono_literals;

void ignore(const std::string& text) { ADD_FAILURE() << text; }

Connected connect_to(EventLoop& loop, std::vector<Address> targets, Milliseconds longest = 5s) {
  std::optional<Connected> result;
  std::unique_ptr<Connector> connector;
  connector = std::make_unique<Connector>(
      loop, std::move(targets), longest,
      [&](Connected connected) {
        result = std::move(connected);
        connector.reset();
      },
      20ms);
  EXPECT_TRUE(turn_until(loop, [&] { return result.has_value(); }));
  return result ? *std::move(result) : Connected{};
}

/// A port that nobody listens on; it stays bound, so that nobody takes it meanwhile.
struct ClosedPort {
  UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  Address address;
  ClosedPort() {
    const Address::Raw raw = Address::loopback_v4(0).raw();
    EXPECT_EQ(::bind(fd.get(), raw.get(), raw.size), 0);
    address = Address::local_of(fd.get());
  }
};

/// Two connected sockets, one of them buffered.
struct Wire {
  explicit Wire(EventLoop& loop, BufferedSocket::Limits limits = {}) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    peer = UniqueFd(fds[1]);
    socket = std::make_unique<BufferedSocket>(
        loop, UniqueFd(fds[0]), limits,
        BufferedSocket::Callbacks{.on_bytes = [this] { ++num_told; },
                                  .on_end = [this](const std::string& reason) { ended = reason; }});
  }
  void say(std::string_view bytes) const {
    EXPECT_EQ(::send(peer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  std::string hear(size_t most = 1 << 20) const {
    std::string bytes(most, '\0');
    const ssize_t got = ::recv(peer.get(), bytes.data(), bytes.size(), 0);
    bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return bytes;
  }
  UniqueFd peer;
  std::unique_ptr<BufferedSocket> socket;
  int num_told = 0;
  std::string ended;
};

TEST(Listener, AcceptsOverBothFamiliesOnOnePort) {
  EventLoop loop;
  std::vector<Address> peers;
  Listener listener(
      loop, ListenSocket::open(std::nullopt, 0), [&](UniqueFd, const Address& peer) { peers.push_back(peer); }, ignore);
  ASSERT_NE(listener.port(), 0);
  const Connected v4 = connect_to(loop, {Address::loopback_v4(listener.port())});
  EXPECT_EQ(v4.problem, "");
  ASSERT_TRUE(turn_until(loop, [&] { return peers.size() == 1; }));
  EXPECT_EQ(peers[0], v4.local) << "mapped addresses are folded";
  const Connected v6 = connect_to(loop, {Address::loopback_v6(listener.port())});
  EXPECT_EQ(v6.problem, "");
  ASSERT_TRUE(turn_until(loop, [&] { return peers.size() == 2; }));
  EXPECT_EQ(peers[1], v6.local);
}

TEST(Listener, APortInUseIsNamedWithTheRemedy) {
  const ListenSocket first = ListenSocket::open(std::nullopt, 0);
  EXPECT_FALSE(ListenSocket::open_if_free(std::nullopt, first.port()));
  EXPECT_FALSE(ListenSocket::open_if_free(Address::loopback_v4(0), first.port()));
  try {
    ListenSocket::open(std::nullopt, first.port());
    FAIL() << "a port was taken twice";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
    EXPECT_EQ(std::string(error.what()),
              fmt::format("port {} of this host is in use by another program (ss -ltnp 'sport = :{}' shows which). Choose "
                          "another port, or port 0 for any free one.", first.port(), first.port()));
  }
}

TEST(Listener, AnAddressOfAnotherHostIsRefused) {
  try {
    ListenSocket::open(Address::parse("192.0.2.1", 0), 0);  // reserved for documentation (RFC 5737)
    FAIL() << "listens on a foreign address";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("192.0.2.1:0: this host has no such address"), std::string::npos) << error.what();
  }
}

TEST(Listener, OutOfDescriptorsItSaysSoOnceAndGoesOnLater) {
  EventLoop loop;
  int accepted = 0;
  std::vector<std::string> problems;
  std::vector<UniqueFd> kept;
  Listener listener(
      loop, ListenSocket::open(Address::loopback_v4(0), 0),
      [&](UniqueFd fd, const Address&) {
        kept.push_back(std::move(fd));
        ++accepted;
      },
      [&](const std::string& text) { problems.push_back(text); });
  // Queued in the kernel before the limit is lowered to what is open already.
  UniqueFd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address::Raw raw = listener.local().raw();
  ASSERT_EQ(::connect(client.get(), raw.get(), raw.size), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit tight = before;
  const UniqueFd next(::dup(0));
  tight.rlim_cur = static_cast<rlim_t>(next.get()) + 1;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
  const Deadline shortage = Deadline::in(250ms);
  while (!shortage.passed()) loop.run_once(shortage.remaining());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(accepted, 0);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0], fmt::format("cannot accept connections on port {}: Too many open files. Raise the limit on open "
                                     "files (ulimit -n).", listener.port()));
  EXPECT_TRUE(turn_until(loop, [&] { return accepted == 1; }));
}

TEST(Connector, ARefusalIsToldInWords) {
  EventLoop loop;
  const ClosedPort closed;
  const Connected connected = connect_to(loop, {closed.address});
  EXPECT_EQ(connected.failure, ConnectFailure::Refused);
  EXPECT_EQ(connected.problem, closed.address.text() + ": connection refused");
}

TEST(Connector, TriesTheNextAddressAtOnceWhenOneFails) {
  EventLoop loop;
  const ClosedPort closed;
  const ListenSocket listening = ListenSocket::open(Address::loopback_v4(0), 0);
  const Connected connected = connect_to(loop, {closed.address, listening.local()});
  EXPECT_EQ(connected.peer, listening.local());
  EXPECT_EQ(Address::peer_of(connected.fd.get()), listening.local());
}

TEST(Connector, AFullBacklogIsNoAnswerAndTheOtherAddressWins) {
  // A listener that accepts nothing and whose queue is full drops what comes: to the outside as a firewall does.
  EventLoop loop;
  UniqueFd full(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Address::Raw raw = Address::loopback_v4(0).raw();
  ASSERT_EQ(::bind(full.get(), raw.get(), raw.size), 0);
  ASSERT_EQ(::listen(full.get(), 0), 0);
  const Address address = Address::local_of(full.get());
  const Connected filler = connect_to(loop, {address});
  ASSERT_EQ(filler.problem, "");

  const Connected lost = connect_to(loop, {address}, 100ms);
  EXPECT_EQ(lost.failure, ConnectFailure::NoAnswer);
  EXPECT_EQ(lost.problem, address.text() + ": no answer in 0.1 s (host down, or a firewall drops the packets)");

  const ListenSocket listening = ListenSocket::open(Address::loopback_v4(0), 0);
  const Connected won = connect_to(loop, {address, listening.local()});
  EXPECT_EQ(won.peer, listening.local());
}

TEST(Connector, FamiliesTakeTurns) {
  const auto v4 = [](int i) { return Address::parse(fmt::format("10.0.0.{}", i), 1).value(); };
  const auto v6 = [](int i) { return Address::parse(fmt::format("fd00::{}", i), 1).value(); };
  EXPECT_EQ(in_turns({v6(1), v6(2), v4(1), v4(2), v4(3)}), (std::vector<Address>{v6(1), v4(1), v6(2), v4(2), v4(3)}));
  EXPECT_EQ(in_turns({v4(1)}), std::vector<Address>{v4(1)});
}

TEST(Connector, MayBeCancelled) {
  EventLoop loop;
  const ListenSocket listening = ListenSocket::open(Address::loopback_v4(0), 0);
  { const Connector connector(loop, {listening.local()}, 5s, [](Connected) { ADD_FAILURE() << "told after its end"; }); }
  loop.run_once(20ms);
  EXPECT_EQ(loop.until_next_timer(99s), 99s);
}

TEST(BufferedSocket, HandsOnWhatCameBeforeTheEnd) {
  EventLoop loop;
  Wire wire(loop);
  wire.say("last words");
  wire.peer.reset();
  ASSERT_TRUE(turn_until(loop, [&] { return !wire.ended.empty(); }));
  EXPECT_EQ(wire.socket->in(), "last words");
  EXPECT_EQ(wire.ended, "closed by the peer");
  EXPECT_FALSE(wire.socket->is_open());
}

TEST(BufferedSocket, PausesAtItsLimitAndGoesOnWhenConsumed) {
  EventLoop loop;
  Wire wire(loop, {.max_in = 10});
  wire.say("0123456789abcdef");
  ASSERT_TRUE(turn_until(loop, [&] { return wire.num_told == 1; }));
  EXPECT_EQ(wire.socket->in(), "0123456789");
  loop.run_once(0ms);
  EXPECT_EQ(wire.num_told, 1);
  wire.socket->consume(7);
  ASSERT_TRUE(turn_until(loop, [&] { return wire.num_told == 2; }));
  EXPECT_EQ(wire.socket->in(), "789abcdef");
}

TEST(BufferedSocket, SendsMoreThanTheKernelTakesAtOnce) {
  EventLoop loop;
  Wire wire(loop);
  const std::string much(3 << 20, 'x');
  wire.socket->send(much);
  EXPECT_GT(wire.socket->num_unsent(), 0U);
  size_t got = 0;
  ASSERT_TRUE(turn_until(loop, [&] {
    for (std::string piece = wire.hear(); !piece.empty(); piece = wire.hear()) got += piece.size();
    return got == much.size();
  }));
  EXPECT_EQ(wire.socket->num_unsent(), 0U);
}

TEST(BufferedSocket, APeerThatDoesNotReadIsTooSlowButNotToldInsideSend) {
  EventLoop loop;
  Wire wire(loop, {.max_out = 100'000});
  wire.socket->send(std::string(4 << 20, 'x'));
  EXPECT_EQ(wire.ended, "");
  ASSERT_TRUE(turn_until(loop, [&] { return !wire.ended.empty(); }));
  EXPECT_TRUE(wire.ended.starts_with("too slow: ")) << wire.ended;
}

TEST(BufferedSocket, ABrokenPipeIsToldFromTheLoop) {
  EventLoop loop;
  Wire wire(loop);
  wire.peer.reset();
  wire.socket->send("x");
  EXPECT_EQ(wire.ended, "");
  ASSERT_TRUE(turn_until(loop, [&] { return !wire.ended.empty(); }));
  EXPECT_EQ(wire.ended, "Broken pipe");
}

TEST(BufferedSocket, ClosesWhenAllIsSentAndThePeerHasClosed) {
  EventLoop loop;
  Wire wire(loop);
  wire.socket->send("goodbye");
  wire.socket->close_when_sent(60s);
  EXPECT_TRUE(wire.socket->is_open());
  wire.say("not read any more");
  EXPECT_EQ(wire.hear(), "goodbye");
  EXPECT_EQ(wire.hear(), "") << "the end of the stream";
  wire.peer.reset();
  ASSERT_TRUE(turn_until(loop, [&] { return !wire.socket->is_open(); }));
  EXPECT_EQ(wire.num_told, 0);
  EXPECT_EQ(wire.ended, "");
  EXPECT_EQ(loop.until_next_timer(99s), 99s);
}

TEST(BufferedSocket, DoesNotWaitForeverForAPeerThatDoesNotClose) {
  EventLoop loop;
  Wire wire(loop);
  wire.socket->close_when_sent(10ms);
  EXPECT_TRUE(turn_until(loop, [&] { return !wire.socket->is_open(); }));
}

TEST(BufferedSocket, LastWordsOverTcpArriveThoughUnreadBytesAreLeft) {
  EventLoop loop;
  std::unique_ptr<BufferedSocket> server;
  Listener listener(
      loop, ListenSocket::open(Address::loopback_v4(0), 0),
      [&](UniqueFd fd, const Address&) {
        server = std::make_unique<BufferedSocket>(loop, std::move(fd), BufferedSocket::Limits{.max_in = 10},
                                                  BufferedSocket::Callbacks{});
        server->send("refused");
        server->close_when_sent(5s);
      },
      ignore);
  Connected connected = connect_to(loop, {listener.local()});
  std::string ended;
  BufferedSocket client(loop, std::move(connected.fd), {}, {.on_bytes = {}, .on_end = [&](const std::string& why) { ended = why; }});
  client.send(std::string(200'000, 'x'));
  ASSERT_TRUE(turn_until(loop, [&] { return !ended.empty(); }));
  EXPECT_EQ(client.in(), "refused");
  EXPECT_EQ(ended, "closed by the peer");
}

TEST(BufferedSocket, GivesItsDescriptorAway) {
  EventLoop loop;
  Wire wire(loop);
  wire.say("first");
  ASSERT_TRUE(turn_until(loop, [&] { return wire.num_told == 1; }));
  const UniqueFd fd = wire.socket->release();
  EXPECT_FALSE(wire.socket->is_open());
  EXPECT_EQ(wire.socket->in(), "first");
  EXPECT_EQ(::send(fd.get(), "still works", 11, 0), 11);
  EXPECT_EQ(wire.hear(), "still works");
  wire.say("x");
  loop.run_once(10ms);
  EXPECT_EQ(wire.num_told, 1);
}

TEST(Datagrams, ReachADualStackSocketAndCanBeAnswered) {
  EventLoop loop;
  auto server = DatagramSocket::open(Address::any_v6(0)).value();
  for (const Address& mine : {Address::loopback_v4(0), Address::loopback_v6(0)}) {
    auto client = DatagramSocket::open(mine).value();
    std::string answered;
    server.start(loop, [&](std::string_view bytes, const Address& from) {
      EXPECT_EQ(from, client.local());
      server.send_to(std::string("re: ").append(bytes), from);
    });
    client.start(loop, [&](std::string_view bytes, const Address&) { answered = bytes; });
    client.send_to(std::string(2'000, 'x'), mine.with_port(server.local().port()));  // too long: dropped
    client.send_to("hello", mine.with_port(server.local().port()));
    ASSERT_TRUE(turn_until(loop, [&] { return !answered.empty(); }));
    EXPECT_EQ(answered, "re: hello");
    server.stop();
  }
}

TEST(Datagrams, APortInUseIsAbsent) {
  const auto first = DatagramSocket::open(Address::loopback_v4(0)).value();
  EXPECT_FALSE(DatagramSocket::open(first.local()));
}

}  // namespace
}  // namespace lockstep::net
