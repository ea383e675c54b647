#include "lockstep/rendezvous/news.h"

#include "lockstep/net/datagram.h"

#include <gtest/gtest.h>

namespace lockstep::rendezvous {
namespace {

using namespace std::chrono_literals;

const std::string kKey(kBeatKeyBytes, 'k');

void tell(News& news, const Message& message, Clock::time_point now = Clock::now()) {
  news.told(news_copy(message, encode(message)), now);
}

std::vector<NumberedNews> in_a_datagram(const News& news) {
  Datagram datagram{.sign = Sign::AgentBeat, .beat_key = kKey, .sequence = 1};
  news.add_to(datagram);
  const std::string bytes = seal(datagram, kKey);
  EXPECT_LE(bytes.size(), net::DatagramSocket::kMaxBytes);
  const auto decoded = decode_sealed(bytes);
  EXPECT_TRUE(decoded);
  return decoded ? news_in(*decoded) : std::vector<NumberedNews>();
}

TEST(News, IsLateOnlyAfterSomePatienceAndUntilItIsConfirmed) {
  News news;
  const Clock::time_point start = Clock::now();
  EXPECT_FALSE(news.is_late(start + 1h));
  tell(news, Outcome{.round = 1}, start);
  EXPECT_FALSE(news.is_late(start + News::kPatience - 1ms));
  EXPECT_TRUE(news.is_late(start + News::kPatience));
  news.confirmed(7);
  EXPECT_TRUE(news.is_late(start + 1h)) << "so many were never told";
  news.confirmed(1);
  EXPECT_FALSE(news.is_late(start + 1h));
  EXPECT_TRUE(news.all_confirmed());
}

TEST(News, IsTakenOnceAndInOrderByWhateverWayItComes) {
  News news;
  EXPECT_FALSE(news.take_from_datagram(1)) << "the one before is missing";
  EXPECT_TRUE(news.take_from_datagram(0));
  EXPECT_FALSE(news.take_from_datagram(0));
  EXPECT_FALSE(news.take_from_connection()) << "a datagram was quicker";
  EXPECT_TRUE(news.take_from_connection());
  EXPECT_FALSE(news.take_from_datagram(1)) << "the connection was quicker";
  EXPECT_TRUE(news.take_from_datagram(2));
  EXPECT_TRUE(news.take_from_datagram(3));
  EXPECT_FALSE(news.take_from_connection());
  EXPECT_FALSE(news.take_from_connection());
  EXPECT_TRUE(news.take_from_connection());
  EXPECT_EQ(news.num_taken(), 5U);
}

TEST(News, ADatagramHoldsTheOldestThatAreNotConfirmed) {
  News news;
  for (uint32_t round = 1; round <= 300; ++round) tell(news, Stopped{.round = round});
  news.confirmed(3);
  const std::vector<NumberedNews> all = in_a_datagram(news);
  ASSERT_GT(all.size(), 50U);
  ASSERT_LT(all.size(), 200U);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].number, 3 + i);
    EXPECT_EQ(all[i].message, Message(Stopped{.round = static_cast<uint32_t>(4 + i)}));
  }
}

TEST(News, ALongTextIsCutForTheDatagram) {
  const Cause cause{.exit_code = 7, .node = std::string(255, 'n'), .text = std::string(20'000, 'a') + "the reason"};
  for (const Message& message : {Message(End{.cause = cause}), Message(Outcome{.round = 1, .cause = cause}),
                                 Message(Stop{.round = 1, .cause = cause}), Message(Stopped{.round = 1, .cause = cause}),
                                 Message(Leave{.cause = cause})}) {
    News news;
    tell(news, message);
    const std::vector<NumberedNews> all = in_a_datagram(news);
    ASSERT_EQ(all.size(), 1U);
    EXPECT_EQ(all[0].message.index(), message.index());
    EXPECT_NE(encode(all[0].message).find("the reason"), std::string::npos);
  }
}

TEST(News, WhatFitsInNoDatagramHoldsUpWhatComesAfterIt) {
  News news;
  Round round{.number = 1};
  for (uint64_t node = 0; node < 40; ++node) round.members.push_back({.node = node, .host_name = "a-host-of-many"});
  tell(news, round);
  tell(news, End{});
  EXPECT_TRUE(in_a_datagram(news).empty());
  news.confirmed(1);
  ASSERT_EQ(in_a_datagram(news).size(), 1U);
  EXPECT_EQ(in_a_datagram(news)[0].number, 1U);
}

TEST(News, OnlyNewsIsTakenFromADatagram) {
  Datagram datagram{.sign = Sign::AgentBeat, .beat_key = kKey, .sequence = 1};
  datagram.news = encode(Stopped{.round = 1}) + encode(Join{.host_name = "n1"}) + encode(Stopped{.round = 2});
  EXPECT_EQ(news_in(datagram).size(), 1U);
  datagram.news = encode(Stopped{.round = 1}) + "\x05";
  EXPECT_EQ(news_in(datagram).size(), 1U);
  datagram.news = std::string("\xff\xff\xff\xff\x09", 5);
  EXPECT_TRUE(news_in(datagram).empty());
}

TEST(Seal, NeedsTheKeyAndEveryByte) {
  const net::Token token = net::Token::make();
  const std::string key = seal_key(token, "nonce a", "nonce c", "job", kKey);
  EXPECT_NE(key, seal_key(token, "nonce A", "nonce c", "job", kKey));
  EXPECT_NE(key, seal_key(net::Token::make(), "nonce a", "nonce c", "job", kKey));
  EXPECT_EQ(seal_key(std::nullopt, "a", "c", "job", kKey), kKey);
  const std::string bytes = seal({.sign = Sign::CoordinatorBeat, .beat_key = kKey, .sequence = 5}, key);
  EXPECT_TRUE(is_sealed_with(bytes, key));
  EXPECT_FALSE(is_sealed_with(bytes, kKey)) << "the beat key goes over the wire";
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string other = bytes;
    other[i] = static_cast<char>(other[i] ^ 1);
    EXPECT_FALSE(is_sealed_with(other, key)) << i;
  }
  EXPECT_FALSE(is_sealed_with("", key));
  EXPECT_FALSE(decode_sealed(""));
}

TEST(Rounds, OfTheLargestJobHaveABound) {
  constexpr size_t kNodes = 4'000;
  Round round{.number = 1};
  Member member{.host_name = std::string(255, 'h'), .address = std::string(255, 'a'), .role = std::string(255, 'r'),
                .addresses = std::vector<std::string>(8, std::string(64, '1'))};
  for (uint64_t node = 0; node < kNodes; ++node) round.members.push_back(member);
  const std::string frame = encode(round, max_round_bytes(kNodes));
  EXPECT_GT(frame.size(), kMaxPayloadBytes);
  EXPECT_LT(max_round_bytes(kMaxNodes), size_t{96} << 20);
  EXPECT_EQ(max_round_bytes(1'000'000), max_round_bytes(kMaxNodes));
}

}  // namespace
}  // namespace lockstep::rendezvous
