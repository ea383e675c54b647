#include "lockstep/rendezvous/messages.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace lockstep::rendezvous {
namespace {

std::vector<Message> examples() {
  const Cause cause{.kind = ErrorKind::Data, .exit_code = 139, .node = "n2", .group_rank = 1, .world_rank = 9,
                    .consequence = true, .text = "rank 9: signal 11"};
  return {
      Hello{.run_id = "job", .nonce = std::string(32, 'n'), .has_token = true},
      Challenge{.nonce = "c", .has_token = true, .proof = "p"},
      Proof{.proof = "p"},
      Welcome{.node = 7, .beat_key = std::string(16, 'k'), .has_udp = true},
      Refused{.reason = RefusalReason::Malformed, .kind = ErrorKind::Resumable, .text = "no"},
      Join{.host_name = "n2", .addresses = {"10.0.0.2", "fd00::2"}, .local_addr = "10.0.0.2", .store_port = 65535,
           .nproc = 8, .role = "trainer", .wanted_rank = -1, .rank_origin = "--node_rank", .program = "./train",
           .pid = 77, .backend = Backend::Static, .min_nodes = 1, .max_nodes = 4, .max_restarts = 3},
      Status{.reason = "waiting", .num_present = 2, .present = {"n1", "n2"}, .missing_ranks = {0, -5}, .seconds_left = -1},
      Round{.number = 2, .restarts = 1, .members = {{1, 0, "n1", "10.0.0.1", 8, "default"}, {4, 1, "n2", "::1", 4, "x"}},
            .master_address = "10.0.0.1", .master_port = 29500, .notes = {"unequal"}},
      Outcome{.round = 1, .cause = cause},
      Outcome{.round = 1},
      Stop{.round = 1, .will_restart = true, .cause = cause},
      Stopped{.round = 1, .cause = cause},
      End{.cause = cause},
      End{},
      Leave{.cause = cause},
      Beat{.sequence = 0xffffffffffffffff},
  };
}

net::Frame frame_of(const std::string& bytes) {
  const net::ParsedFrame parsed = net::parse_frame(bytes, kMaxPayloadBytes);
  EXPECT_EQ(parsed.state, net::ParsedFrame::State::Complete);
  return parsed.frame;
}

TEST(Messages, RoundTrip) {
  std::set<size_t> kinds;
  for (const Message& message : examples()) {
    const std::string bytes = encode(message);
    const Decoded decoded = decode(frame_of(bytes));
    ASSERT_TRUE(decoded.message) << decoded.problem;
    EXPECT_EQ(*decoded.message, message) << message_name(static_cast<uint8_t>(message.index() + 1));
    kinds.insert(message.index());
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Message>) << "an example of every message";
}

TEST(Messages, TheirNumbersDoNotChange) {
  EXPECT_EQ(encode(Beat{1, 2}), std::string("\x0c\0\0\0\x0e\x01\0\0\0\0\0\0\0\x02\0\0\0", 17));
  EXPECT_EQ(message_name(1), "Hello");
  EXPECT_EQ(message_name(8), "Round");
  EXPECT_EQ(message_name(14), "Beat");
  EXPECT_EQ(message_name(0), "message 0");
  EXPECT_EQ(message_name(15), "message 15");
}

TEST(Messages, CutOrLengthenedOnesAreMalformed) {
  for (const Message& message : examples()) {
    const std::string bytes = encode(message);
    net::Frame frame = frame_of(bytes);
    const std::string payload(frame.payload);
    for (size_t size = 0; size <= payload.size() + 1; ++size) {
      if (size == payload.size()) continue;
      std::string changed = payload;
      changed.resize(size, '\0');
      frame.payload = changed;
      const Decoded decoded = decode(frame);
      EXPECT_FALSE(decoded.message);
      EXPECT_TRUE(decoded.problem.starts_with("malformed " + message_name(frame.type))) << decoded.problem;
    }
  }
}

TEST(Messages, AnyBytesAreDecodedOrRefused) {
  std::mt19937 random(7);
  int num_refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string payload(random() % 64, '\0');
    for (char& byte : payload) byte = static_cast<char>(random() % 4 == 0 ? random() : 0);
    const Decoded decoded = decode({.type = static_cast<uint8_t>(random() % 17), .payload = payload, .size_bytes = 0});
    EXPECT_NE(decoded.message.has_value(), !decoded.problem.empty());
    if (decoded.message) {
      EXPECT_TRUE(decode(frame_of(encode(*decoded.message))).message);
    } else {
      ++num_refused;
    }
  }
  EXPECT_GT(num_refused, 10'000);
}

TEST(Messages, DatagramsAreExactlySo) {
  const std::string key(kBeatKeyBytes, 'k');
  const std::string bytes = encode_datagram({Sign::CoordinatorFarewell, key, 77});
  const auto datagram = decode_datagram(bytes);
  ASSERT_TRUE(datagram);
  EXPECT_EQ(datagram->sign, Sign::CoordinatorFarewell);
  EXPECT_EQ(datagram->beat_key, key);
  EXPECT_EQ(datagram->sequence, 77U);
  EXPECT_FALSE(decode_datagram(bytes + "x"));
  EXPECT_FALSE(decode_datagram(bytes.substr(1)));
  EXPECT_FALSE(decode_datagram(""));
  std::string other = bytes;
  other[4] = 'x';
  EXPECT_FALSE(decode_datagram(other));
}

TEST(Messages, LongTextsKeepTheirEnd) {
  EXPECT_EQ(shortened("short"), "short");
  const std::string text = shortened(std::string(50'000, 'a') + "the cause");
  EXPECT_EQ(text.size(), kMaxTextBytes);
  EXPECT_TRUE(text.ends_with("the cause"));
  EXPECT_NE(text.find("\n[...]\n"), std::string::npos);
}

TEST(Messages, WhatStrangersSayIsMadePrintable) {
  EXPECT_EQ(printable(std::string("a\x1b[31m\n\0z", 9)), "a?[31m??z");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
}

}  // namespace
}  // namespace lockstep::rendezvous
