#include "rendezvous/store_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::rendezvous {
namespace {

using enum StoreOp;

const std::string kZero(1, '\0');
const std::string kOne(1, '\1');

TEST(StoreServer, AnswersTheCapturedGreeting) {
  StoreRig rig;
  RawClient client(rig.loop, net::Address::loopback_v4(rig.server.port()));
  EXPECT_EQ(to_hex(client.ask(from_hex("00 cef7853c 0d d2040000"), 4)), "d2040000");
  EXPECT_TRUE(client.nothing_waits());
}

TEST(StoreServer, AnswersEveryCommandAsLibtorchsServerDoes) {
  StoreRig rig;
  RawClient client = rig.client();
  const auto expect = [&](const std::string& bytes, const std::string& reply) {
    EXPECT_EQ(to_hex(client.ask(bytes, reply.size())), to_hex(reply)) << to_hex(bytes);
    EXPECT_TRUE(client.nothing_waits()) << to_hex(bytes);
  };
  expect(bytes_of(Add, {"init/"}, {}, 1), i64(1));
  expect(bytes_of(Set, {"/a"}, {"x"}), "");
  expect(bytes_of(Get, {"/a"}), blob("x"));
  expect(bytes_of(Get, {"/absent"}), blob(""));
  expect(bytes_of(Append, {"/a"}, {"yz"}), "");
  expect(bytes_of(Wait, {"/a"}), kZero);
  expect(bytes_of(Wait, {}), kZero);
  expect(bytes_of(Check, {"/a", "init/"}), kZero);
  expect(bytes_of(Check, {"/a", "/absent"}), kOne);
  expect(bytes_of(Check, {}), kZero);
  expect(bytes_of(CompareSet, {"/a"}, {"no", "new"}), blob("xyz"));
  expect(bytes_of(CompareSet, {"/a"}, {"xyz", "new"}), blob("new"));
  expect(bytes_of(CompareSet, {"/c"}, {"no", "new"}), blob("no"));
  expect(bytes_of(CompareSet, {"/c"}, {"", "new"}), blob("new"));
  expect(bytes_of(MultiSet, {"/m1", "/m2"}, {"1", ""}), "");
  expect(bytes_of(MultiSet), "");
  expect(bytes_of(MultiGet, {"/m1", "/absent", "/m2"}), blob("1") + blob("") + blob(""));
  expect(bytes_of(MultiGet), "");
  expect(bytes_of(NumKeys), i64(5));
  expect(bytes_of(Delete, {"/m2"}), i64(1));
  expect(bytes_of(Delete, {"/m2"}), i64(0));
  expect(bytes_of(QueuePop, {"/q"}), i64(0));
  expect(bytes_of(QueuePush, {"/q"}, {"first"}), "");
  expect(bytes_of(QueuePush, {"/q"}, {"second"}), "");
  expect(bytes_of(QueueLength, {"/q"}), i64(2));
  expect(bytes_of(Check, {"/q"}), kZero);
  expect(bytes_of(QueuePop, {"/q"}), i64(2) + blob("first"));
  expect(bytes_of(QueuePop, {"/q"}), i64(1) + blob("second"));
  expect(bytes_of(Check, {"/q"}), kOne);
  expect(bytes_of(Barrier, {"/b"}, {}, 1), kZero);
  expect(bytes_of(Get, {"/b"}), blob("1"));
  expect(bytes_of(CancelWait), kOne);
}

TEST(StoreServer, ListsKeysAsTheyAreStored) {
  StoreRig rig;
  RawClient client = rig.client();
  EXPECT_EQ(client.ask(bytes_of(ListKeys), 8), i64(0));
  client.send(bytes_of(Set, {"/a"}, {""}) + bytes_of(Set, {"init/"}, {""}));
  const std::string list = client.ask(bytes_of(ListKeys), 8 + 10 + 13);
  const std::string one_way = i64(2) + blob("/a") + blob("init/");
  const std::string other_way = i64(2) + blob("init/") + blob("/a");
  EXPECT_TRUE(list == one_way || list == other_way) << to_hex(list);
}

TEST(StoreServer, AWaitEndsWhenAnotherClientMakesTheLastKey) {
  StoreRig rig;
  RawClient waiter = rig.client();
  RawClient other = rig.client();
  waiter.send(bytes_of(Wait, {"/a", "/b"}));
  EXPECT_TRUE(waiter.nothing_waits());
  other.send(bytes_of(Set, {"/a"}, {"1"}));
  EXPECT_TRUE(other.nothing_waits());
  EXPECT_TRUE(waiter.nothing_waits());
  EXPECT_EQ(rig.server.statistics().waiting, 1U);
  other.send(bytes_of(MultiSet, {"/b"}, {"2"}));
  EXPECT_EQ(waiter.receive(1), kZero);
  EXPECT_EQ(waiter.ask(bytes_of(MultiGet, {"/a", "/b"}), 18), blob("1") + blob("2"));
  EXPECT_EQ(rig.server.statistics().waiting, 0U);
}

TEST(StoreServer, ACancelledWaitLeavesTheConnectionUsable) {
  StoreRig rig;
  RawClient waiter = rig.client();
  RawClient other = rig.client();
  waiter.send(bytes_of(Wait, {"/never"}));
  EXPECT_EQ(waiter.ask(bytes_of(CancelWait), 1), kOne);
  EXPECT_EQ(other.ask(bytes_of(Add, {"/never"}, {}, 1), 8), i64(1));
  EXPECT_TRUE(waiter.nothing_waits()) << "a key that comes after the cancellation is not told";
  EXPECT_EQ(waiter.ask(bytes_of(Wait, {"/never"}), 1), kZero);
}

// The client's time-out and the key cross each other: the client then reads 0 (the wait is over) before 1 (cancelled).
TEST(StoreServer, ACancellationThatComesTooLateIsAnsweredAfterTheWait) {
  StoreRig rig;
  RawClient waiter = rig.client();
  RawClient other = rig.client();
  waiter.send(bytes_of(Wait, {"/k"}));
  EXPECT_TRUE(waiter.nothing_waits());
  EXPECT_EQ(other.ask(bytes_of(Add, {"/k"}, {}, 1), 8), i64(1));
  EXPECT_EQ(waiter.ask(bytes_of(CancelWait), 2), kZero + kOne);
  EXPECT_TRUE(waiter.nothing_waits());
}

TEST(StoreServer, AClientMayEndItsOwnWait) {
  StoreRig rig;
  RawClient client = rig.client();
  EXPECT_EQ(client.ask(bytes_of(Wait, {"/k"}) + bytes_of(Set, {"/k"}, {""}), 1), kZero);
  EXPECT_TRUE(client.nothing_waits());
}

TEST(StoreServer, AClientThatGoesWhileItWaitsLeavesNothingBehind) {
  StoreRig rig;
  RawClient other = rig.client();
  {
    RawClient waiter = rig.client();
    RawClient arrived = rig.client();
    waiter.send(bytes_of(Wait, {"/k"}));
    arrived.send(bytes_of(Barrier, {"/b"}, {}, 2));
    ASSERT_TRUE(rig.run_until([&] { return rig.server.statistics().waiting == 2; }));
  }
  ASSERT_TRUE(rig.run_until([&] { return rig.server.statistics().connections == 1; }));
  EXPECT_EQ(rig.server.statistics().waiting, 0U);
  other.send(bytes_of(Set, {"/k"}, {""}));
  EXPECT_EQ(other.ask(bytes_of(Get, {"/b"}), 9), blob("0")) << "who has gone is not at the barrier";
}

TEST(StoreServer, ABarrierOpensForAll) {
  StoreRig rig;
  std::vector<RawClient> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(rig.client());
  for (int i = 0; i < 4; ++i) {
    clients[i].send(bytes_of(Barrier, {"/b"}, {}, 5));
    EXPECT_TRUE(clients[i].nothing_waits()) << i;
  }
  EXPECT_EQ(clients[4].ask(bytes_of(Barrier, {"/b"}, {}, 5), 1), kZero);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(clients[i].receive(1), kZero) << i;
}

TEST(StoreServer, ABarrierThatTimedOutIsCancelledLikeAWait) {
  StoreRig rig;
  RawClient first = rig.client();
  RawClient second = rig.client();
  first.send(bytes_of(Barrier, {"/b"}, {}, 2));
  EXPECT_EQ(first.ask(bytes_of(CancelWait), 1), kOne);
  second.send(bytes_of(Barrier, {"/b"}, {}, 2));
  EXPECT_TRUE(second.nothing_waits());
  EXPECT_EQ(first.ask(bytes_of(Barrier, {"/b"}, {}, 2), 1), kZero);
  EXPECT_EQ(second.receive(1), kZero);
}

TEST(StoreServer, BlockedPopsAreServedInTurn) {
  StoreRig rig;
  RawClient first = rig.client();
  RawClient second = rig.client();
  RawClient pusher = rig.client();
  first.send(bytes_of(Wait, {"/q"}));
  EXPECT_TRUE(first.nothing_waits());
  second.send(bytes_of(Wait, {"/q"}));
  EXPECT_TRUE(second.nothing_waits());
  pusher.send(bytes_of(QueuePush, {"/q"}, {"1"}));
  EXPECT_EQ(first.receive(1), kZero);
  EXPECT_EQ(first.ask(bytes_of(QueuePop, {"/q"}), 17), i64(1) + blob("1"));
  EXPECT_TRUE(second.nothing_waits());
  pusher.send(bytes_of(QueuePush, {"/q"}, {"2"}));
  EXPECT_EQ(second.receive(1), kZero);
  EXPECT_EQ(second.ask(bytes_of(QueuePop, {"/q"}), 17), i64(1) + blob("2"));
}

TEST(StoreServer, CommandsMayComeByteByByteAndManyAtOnce) {
  StoreRig rig;
  RawClient slow = rig.client();
  for (const char byte : bytes_of(Set, {"/k"}, {"value"})) {
    slow.send({&byte, 1});
    EXPECT_EQ(rig.server.statistics().closed, 0U);
  }
  EXPECT_TRUE(slow.nothing_waits());
  RawClient fast = rig.client();
  std::string many;
  std::string replies;
  for (int i = 1; i <= 1000; ++i) {
    many += bytes_of(Add, {"/n"}, {}, 1) + bytes_of(Get, {"/k"});
    replies += i64(i) + blob("value");
  }
  EXPECT_TRUE(fast.ask(many, replies.size()) == replies);
}

TEST(StoreServer, HoldsTheLargestValueAndTenThousandKeys) {
  StoreRig rig;
  RawClient client = rig.client();
  const std::string large(8 << 20, 'v');
  client.send(bytes_of(Set, {"/large"}, {large}));
  EXPECT_TRUE(client.ask(bytes_of(Get, {"/large"}), large.size() + 8) == blob(large));

  std::vector<std::string> keys;
  std::vector<std::string> values;
  std::string replies;
  for (int i = 0; i < 10'000; ++i) {
    keys.push_back(fmt::format("/key/{}", i));
    values.push_back(fmt::format("value of {}", i));
    replies += blob(values.back());
  }
  RawClient waiter = rig.client();
  waiter.send(bytes_of(Wait, keys));
  EXPECT_TRUE(waiter.nothing_waits());
  client.send(bytes_of(MultiSet, keys, values));
  EXPECT_EQ(waiter.receive(1), kZero);
  EXPECT_TRUE(waiter.ask(bytes_of(MultiGet, keys), replies.size()) == replies);
  EXPECT_EQ(client.ask(bytes_of(NumKeys), 8), i64(10'001));
  EXPECT_EQ(client.ask(bytes_of(ListKeys), 8), i64(10'001));
}

TEST(StoreServer, TakesAConnectionThatCameElsewhereWithItsFirstBytes) {
  net::EventLoop loop;
  std::vector<std::string> log;
  StoreServer server(loop, {}, {}, StoreRig::anybody(), [&](const std::string& line) { log.push_back(line); });
  EXPECT_EQ(server.port(), 0);
  std::vector<UniqueFd> accepted;
  net::Listener elsewhere(loop, net::ListenSocket::open(net::Address::loopback_v4(0), 0),
                          [&](UniqueFd fd, const net::Address&) { accepted.push_back(std::move(fd)); },
                          [](const std::string&) {});
  for (size_t known = 0; known <= greeting(1).size(); ++known) {
    RawClient client(loop, elsewhere.local());
    while (accepted.empty()) loop.run_once(Milliseconds(1000));
    const std::string all = greeting(1);
    server.adopt(std::move(accepted.back()), std::string_view(all).substr(0, known));
    accepted.pop_back();
    EXPECT_EQ(client.ask(std::string_view(all).substr(known), 4), from_hex("01000000")) << known;
  }
  EXPECT_TRUE(log.empty());
}

TEST(StoreServer, ListensOnSeveralAddresses) {
  net::EventLoop loop;
  std::vector<net::ListenSocket> sockets;
  sockets.push_back(net::ListenSocket::open(net::Address::loopback_v4(0), 0));
  sockets.push_back(net::ListenSocket::open(net::Address::parse("127.0.0.2", 0), sockets[0].port()));
  const std::vector<net::Address> at{sockets[0].local(), sockets[1].local()};
  StoreServer server(loop, std::move(sockets), {}, StoreRig::anybody(), [](const std::string&) {});
  EXPECT_EQ(server.port(), at[0].port());
  RawClient first(loop, at[0]);
  RawClient second(loop, at[1]);
  first.greet();
  second.greet();
  first.send(bytes_of(Set, {"/k"}, {"v"}));
  EXPECT_TRUE(first.nothing_waits());
  EXPECT_EQ(second.ask(bytes_of(Get, {"/k"}), 9), blob("v"));
}

TEST(StoreServer, ClearForgetsKeysAndClosesConnectionsAndGoesOn) {
  StoreRig rig;
  RawClient old = rig.client();
  RawClient waiter = rig.client();
  old.send(bytes_of(Set, {"/k"}, {"v"}));
  EXPECT_TRUE(old.nothing_waits());
  waiter.send(bytes_of(Wait, {"/next"}));
  EXPECT_TRUE(waiter.nothing_waits());
  rig.server.clear();
  EXPECT_TRUE(old.is_closed());
  EXPECT_TRUE(waiter.is_closed());
  RawClient next = rig.client();
  EXPECT_EQ(next.ask(bytes_of(NumKeys), 8), i64(0));
  next.send(bytes_of(Set, {"/next"}, {""}));
  EXPECT_TRUE(next.nothing_waits());
  EXPECT_EQ(rig.server.statistics().connections, 1U);
  EXPECT_TRUE(rig.log.empty()) << rig.log.front();
}

TEST(StoreServer, CountsWhatItDoes) {
  StoreRig rig;
  RawClient client = rig.client();
  client.send(bytes_of(Set, {"/k"}, {"v"}));
  client.send(bytes_of(Set, {"/k"}, {"w"}));
  EXPECT_TRUE(client.nothing_waits());
  const StoreServer::Statistics statistics = rig.server.statistics();
  EXPECT_EQ(statistics.connections, 1U);
  EXPECT_EQ(statistics.accepted, 1U);
  EXPECT_EQ(statistics.keys, 1U);
  EXPECT_EQ(statistics.data_bytes, kEntryOverhead + 3);
  EXPECT_EQ(statistics.buffer_bytes, 0U);
  EXPECT_EQ(statistics.commands[static_cast<size_t>(Set)], 2U);
  EXPECT_EQ(statistics.commands[static_cast<size_t>(Ping)], 2U);
}

TEST(StoreServer, EndsInTheMiddleOfEverything) {
  net::EventLoop loop;
  std::vector<net::ListenSocket> sockets;
  sockets.push_back(net::ListenSocket::open(net::Address::loopback_v4(0), 0));
  const net::Address at = sockets[0].local();
  std::vector<RawClient> clients;
  {
    StoreServer server(loop, std::move(sockets), {}, StoreRig::anybody(), [](const std::string&) {});
    for (int i = 0; i < 3; ++i) clients.emplace_back(loop, at).greet();
    clients[0].send(bytes_of(Wait, {"/k"}));
    clients[1].send(bytes_of(Set, {"/k"}, {"half"}).substr(0, 20));
    EXPECT_TRUE(clients[0].nothing_waits());
  }
  for (RawClient& client : clients) EXPECT_TRUE(client.is_closed());
  loop.run_once(Milliseconds(0));
}

}  // namespace
}  // namespace lockstep::rendezvous
