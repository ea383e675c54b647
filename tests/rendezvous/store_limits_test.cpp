// What happens to a store when clients are strangers, broken, slow, greedy or dead, and to the others beside them.
#include "rendezvous/store_client.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep::rendezvous {
namespace {

using enum StoreOp;

/// The client works as if nothing had happened.
void expect_served(RawClient& client) {
  const std::string value = "still here";
  client.send(bytes_of(Set, {"/served"}, {value}));
  EXPECT_EQ(client.ask(bytes_of(Get, {"/served"}), 8 + value.size()), blob(value));
}

struct BadStream {
  const char* what;
  std::string bytes;
  const char* words;
};

TEST(StoreLimits, WhatDoesNotBeginLikeAClientIsClosedWithWords) {
  const std::vector<BadStream> streams{
      {"a web browser", "GET / HTTP/1.1\r\n\r\n", "first byte is 0x47"},
      {"an agent", "LSR1", "first byte is 0x4c"},
      {"no introduction", bytes_of(Set, {"/k"}, {"v"}), "first byte is 0x01"},
      {"a wrong magic number", from_hex("00 cef7853d 0d01000000"), "0x3d85f7ce is not the number"},
      {"zeros", std::string(64, '\0'), "0x00000000 is not the number"},
  };
  for (const BadStream& stream : streams) {
    StoreRig rig;
    RawClient good = rig.client();
    RawClient bad(rig.loop, net::Address::loopback_v4(rig.server.port()));
    bad.send(stream.bytes);
    EXPECT_TRUE(bad.is_closed()) << stream.what;
    EXPECT_TRUE(rig.logged(stream.words)) << stream.what << ": " << (rig.log.empty() ? "no line" : rig.log[0]);
    EXPECT_EQ(rig.log.size(), 1U) << stream.what;
    expect_served(good);
    EXPECT_EQ(rig.server.statistics().keys, 1U) << stream.what;
  }
}

TEST(StoreLimits, ABrokenOrOversizedCommandClosesThatConnectionAlone) {
  std::string long_key = from_hex("03");
  put_i64(long_key, 8193);
  std::string long_value = from_hex("01 0100000000000000 61");
  put_i64(long_value, (8 << 20) + 1);
  std::string many_keys = from_hex("06");
  put_i64(many_keys, 131'073);
  const std::vector<BadStream> streams{
      {"an unknown command", from_hex("13"), "0x13 is not a command"},
      {"a second introduction", from_hex("00 cef7853c"), "VALIDATE: sent twice"},
      {"a long key", long_key, "GET: the key has 8193 bytes"},
      {"a long value", long_value, "SET: the value has 8388609 bytes"},
      {"many keys", many_keys, "WAIT: 131073 keys"},
      {"a number that is none", bytes_of(Set, {"/n"}, {"five"}) + bytes_of(Add, {"/n"}, {}, 1), "ADD: key '/n' holds"},
      {"two waits", bytes_of(Wait, {"/x"}) + bytes_of(Wait, {"/y"}), "WAIT: the client waits already"},
  };
  for (const BadStream& stream : streams) {
    StoreRig rig;
    RawClient good = rig.client();
    RawClient bad = rig.client();
    bad.send(stream.bytes);
    EXPECT_TRUE(bad.is_closed()) << stream.what;
    EXPECT_TRUE(rig.logged(stream.words)) << stream.what << ": " << (rig.log.empty() ? "no line" : rig.log[0]);
    EXPECT_TRUE(rig.logged(bad.local().text())) << "the line names the client";
    EXPECT_EQ(rig.server.statistics().closed, 1U);
    expect_served(good);
  }
}

TEST(StoreLimits, ATruncatedCommandIsNotDone) {
  const std::string whole = bytes_of(MultiSet, {"/a", "/b"}, {"1", "2"});
  for (size_t size = 1; size < whole.size(); size += 5) {
    StoreRig rig;
    RawClient good = rig.client();
    {
      RawClient cut = rig.client();
      cut.send(std::string_view(whole).substr(0, size));
    }
    ASSERT_TRUE(rig.run_until([&] { return rig.server.statistics().connections == 1; }));
    EXPECT_EQ(good.ask(bytes_of(NumKeys), 8), i64(0)) << size;
    EXPECT_TRUE(rig.log.empty()) << "a client that goes is nothing to tell";
  }
}

TEST(StoreLimits, AnAddressThatIsNotAllowedIsRefusedWithALine) {
  StoreRig rig({}, StoreServer::only({*net::Address::parse("127.0.0.7", 0)}));
  for (int i = 0; i < 2; ++i) {
    RawClient stranger(rig.loop, net::Address::loopback_v4(rig.server.port()));
    stranger.send(greeting(1) + bytes_of(Set, {"/k"}, {"v"}));
    EXPECT_TRUE(stranger.is_closed());
  }
  ASSERT_EQ(rig.log.size(), 2U);
  EXPECT_TRUE(rig.logged("refused a connection from 127.0.0.1:")) << rig.log[0];
  EXPECT_TRUE(rig.logged("no address of a member")) << rig.log[0];
  EXPECT_EQ(rig.server.statistics().refused, 2U);
  EXPECT_EQ(rig.server.statistics().keys, 0U);

  rig.server.set_allowed(StoreServer::only({*net::Address::parse("127.0.0.1", 9)}));
  RawClient member = rig.client();
  expect_served(member);
}

TEST(StoreLimits, AnAdoptedConnectionIsAskedForItsAddressToo) {
  StoreRig rig({}, StoreServer::only({}));
  std::vector<UniqueFd> accepted;
  net::Listener elsewhere(rig.loop, net::ListenSocket::open(net::Address::loopback_v4(0), 0),
                          [&](UniqueFd fd, const net::Address&) { accepted.push_back(std::move(fd)); },
                          [](const std::string&) {});
  RawClient stranger(rig.loop, elsewhere.local());
  ASSERT_TRUE(rig.run_until([&] { return !accepted.empty(); }));
  rig.server.adopt(std::move(accepted.back()), from_hex("00"));
  EXPECT_TRUE(stranger.is_closed());
  EXPECT_EQ(rig.server.statistics().refused, 1U);
}

TEST(StoreLimits, NumberOfConnectionsIsBounded) {
  StoreRig rig({.connections = 2});
  RawClient first = rig.client();
  {
    RawClient second = rig.client();
    RawClient third(rig.loop, net::Address::loopback_v4(rig.server.port()));
    EXPECT_TRUE(third.is_closed());
    EXPECT_TRUE(rig.logged("2 connections are open"));
  }
  ASSERT_TRUE(rig.run_until([&] { return rig.server.statistics().connections == 1; }));
  RawClient next = rig.client();
  expect_served(next);
  expect_served(first);
}

TEST(StoreLimits, AFullStoreRefusesTheWriterAndServesTheRest) {
  StoreRig rig({.data = {.total_bytes = 10'000}});
  RawClient reader = rig.client();
  RawClient writer = rig.client();
  for (int i = 0; i < 12; ++i) writer.send(bytes_of(Set, {fmt::format("/{}", i)}, {std::string(1000, 'x')}));
  EXPECT_TRUE(writer.is_closed());
  EXPECT_TRUE(rig.logged("SET: the store is full")) << rig.log.at(0);
  EXPECT_LE(rig.server.statistics().data_bytes, 10'000U);
  EXPECT_EQ(reader.ask(bytes_of(Get, {"/3"}), 1008), blob(std::string(1000, 'x')));
  EXPECT_EQ(reader.ask(bytes_of(Delete, {"/3"}), 8), i64(1));
  expect_served(reader);
}

TEST(StoreLimits, WhatARefusedCommandHasDoneIsToldToThoseWhoWait) {
  StoreRig rig({.data = {.total_bytes = 5000}});
  RawClient waiter = rig.client();
  RawClient writer = rig.client();
  waiter.send(bytes_of(Wait, {"/small"}));
  EXPECT_TRUE(waiter.nothing_waits());
  writer.send(bytes_of(MultiSet, {"/small", "/large"}, {"v", std::string(6000, 'x')}));
  EXPECT_TRUE(writer.is_closed());
  EXPECT_EQ(waiter.receive(1), std::string(1, '\0'));
  EXPECT_EQ(waiter.ask(bytes_of(Get, {"/small"}), 9), blob("v"));
}

// Both happen in one round of the loop, before the closed connection is destroyed.
TEST(StoreLimits, AClientThatWasClosedIsNotWoken) {
  StoreRig rig;
  RawClient bad = rig.client();
  RawClient good = rig.client();
  const std::string wait_and_garbage = bytes_of(Wait, {"/k"}) + from_hex("13");
  const std::string set = bytes_of(Set, {"/k"}, {"v"});
  rig.loop.run_once(Milliseconds(0));  // epoll forgets who was ready before: these come in the order they are sent
  EXPECT_EQ(bad.send_some(wait_and_garbage), wait_and_garbage.size());
  EXPECT_EQ(good.send_some(set), set.size());
  rig.loop.run_once(Milliseconds(1000));
  EXPECT_TRUE(bad.is_closed());
  EXPECT_EQ(good.ask(bytes_of(Get, {"/k"}), 9), blob("v"));
}

TEST(StoreLimits, AReplyThatWouldBeTooLargeIsRefused) {
  StoreRig rig({.reply_bytes = 1 << 20});
  RawClient good = rig.client();
  RawClient greedy = rig.client();
  good.send(bytes_of(Set, {"/large"}, {std::string(700'000, 'x')}));
  EXPECT_TRUE(good.nothing_waits());
  EXPECT_EQ(greedy.ask(bytes_of(Get, {"/large"}), 700'008).size(), 700'008U);
  greedy.send(bytes_of(MultiGet, {"/large", "/large"}));
  EXPECT_TRUE(greedy.is_closed());
  EXPECT_TRUE(rig.logged("MULTI_GET: a reply of 700008 bytes")) << rig.log.at(0);
  expect_served(good);
}

TEST(StoreLimits, AClientThatAsksAndDoesNotReadIsClosedAtItsBound) {
  StoreRig rig({.reply_bytes = 4 << 20});
  RawClient good = rig.client();
  RawClient deaf = rig.client();
  good.send(bytes_of(Set, {"/large"}, {std::string(1 << 20, 'x')}));
  EXPECT_TRUE(good.nothing_waits());
  const std::string question = bytes_of(Get, {"/large"});
  size_t largest = 0;
  // The kernel's buffers take some megabytes first.
  for (int i = 0; i < 1000 && rig.server.statistics().closed == 0; ++i) {
    deaf.send_some(question);
    ASSERT_TRUE(good.nothing_waits()) << "the others are served meanwhile";
    largest = std::max(largest, rig.server.statistics().buffer_bytes);
  }
  EXPECT_EQ(rig.server.statistics().closed, 1U);
  EXPECT_LE(largest, size_t{4} << 20);
  EXPECT_GT(largest, size_t{2} << 20);
  EXPECT_EQ(rig.server.statistics().buffer_bytes, 0U);
  expect_served(good);
}

TEST(StoreLimits, AClientThatReadsNothingForTooLongIsClosed) {
  StoreRig rig({.stalled = Milliseconds(40)});
  RawClient good = rig.client();
  RawClient dead = rig.client();
  good.send(bytes_of(Set, {"/large"}, {std::string(8 << 20, 'x')}));
  EXPECT_TRUE(good.nothing_waits());
  for (int i = 0; i < 3; ++i) dead.send(bytes_of(Get, {"/large"}));
  ASSERT_TRUE(rig.run_until([&] { return rig.server.statistics().closed == 1; }));
  EXPECT_TRUE(rig.logged("it has read nothing for")) << rig.log.at(0);
  expect_served(good);
}

TEST(StoreLimits, AClientThatReadsSlowlyIsNotClosed) {
  StoreRig rig({.stalled = Milliseconds(200)});
  RawClient slow = rig.client();
  const std::string large(8 << 20, 'x');
  slow.send(bytes_of(Set, {"/large"}, {large}));
  for (int i = 0; i < 3; ++i) slow.send(bytes_of(Get, {"/large"}));
  // At most 280 kB every 10 ms: what the kernel does not buffer takes longer than a client may stall.
  size_t left = 3 * (large.size() + 8);
  const Deadline deadline = Deadline::in(Milliseconds(20'000));
  while (left > 0 && !deadline.passed()) {
    const Deadline pause = Deadline::in(Milliseconds(10));
    while (!pause.passed()) rig.loop.run_once(pause.remaining());
    const size_t step = std::min<size_t>(left, 280'000);
    ASSERT_EQ(slow.receive(step).size(), step);
    left -= step;
  }
  EXPECT_EQ(left, 0U);
  expect_served(slow);
  EXPECT_EQ(rig.server.statistics().closed, 0U);
}

TEST(StoreLimits, AConnectionThatSaysNothingIsClosedAndAWaitingClientIsNot) {
  StoreRig rig({.handshake = Milliseconds(40), .stalled = Milliseconds(40)});
  RawClient waiter = rig.client();
  waiter.send(bytes_of(Wait, {"/k"}));
  RawClient silent(rig.loop, net::Address::loopback_v4(rig.server.port()));
  RawClient half(rig.loop, net::Address::loopback_v4(rig.server.port()));
  half.send(from_hex("00 cef7"));
  ASSERT_TRUE(rig.run_until([&] { return rig.server.statistics().closed == 2; }));
  EXPECT_TRUE(rig.logged("it has not introduced itself for")) << rig.log.at(0);
  EXPECT_TRUE(silent.is_closed());
  EXPECT_TRUE(half.is_closed());
  expect_served(waiter);
}

TEST(StoreLimits, WhenAllBuffersAreFullTheGreediestClientGoes) {
  StoreRig rig({.reply_bytes = 32 << 20, .buffer_bytes = 24 << 20});
  RawClient good = rig.client();
  good.send(bytes_of(Set, {"/large"}, {std::string(8 << 20, 'x')}));
  EXPECT_TRUE(good.nothing_waits());
  // An honest client in the middle of a large command, beside some that ask and do not read.
  RawClient writer = rig.client();
  const std::string command = bytes_of(Set, {"/w"}, {std::string(4 << 20, 'w')});
  writer.send(std::string_view(command).substr(0, command.size() - 1));
  std::vector<RawClient> deaf;
  for (int i = 0; i < 6; ++i) {
    deaf.push_back(rig.client());
    deaf.back().send(bytes_of(Get, {"/large"}) + bytes_of(Get, {"/large"}));
    EXPECT_TRUE(good.nothing_waits());
    EXPECT_LE(rig.server.statistics().buffer_bytes, size_t{24} << 20);
  }
  EXPECT_GT(rig.server.statistics().closed, 0U);
  EXPECT_TRUE(rig.logged("all clients hold")) << rig.log.at(0);
  writer.send(std::string_view(command).substr(command.size() - 1));
  EXPECT_TRUE(writer.nothing_waits());
  EXPECT_EQ(good.ask(bytes_of(Check, {"/w"}), 1), std::string(1, '\0'));
}

TEST(StoreLimits, AFloodOfRefusalsDoesNotFloodTheLog) {
  StoreRig rig;
  for (int i = 0; i < 100; ++i) {
    RawClient bad(rig.loop, net::Address::loopback_v4(rig.server.port()));
    bad.send("garbage");
    EXPECT_TRUE(bad.is_closed());
  }
  EXPECT_EQ(rig.server.statistics().closed, 100U);
  EXPECT_EQ(rig.log.size(), size_t{RefusalLog::kLines});
}

}  // namespace
}  // namespace lockstep::rendezvous
