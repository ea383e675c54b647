#include "lockstep/rendezvous/store_commands.h"
#include "rendezvous/store_client.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::rendezvous {
namespace {

using enum StoreOp;
using Result = CommandParser::Result;

struct Captured {
  const char* hex;
  StoreCommand command;
};

/// Every command in the bytes that a client of torch 2.15 was seen to send.
std::vector<Captured> captured() {
  return {
      {"00 cef7853c", command(Validate, {}, {}, 0x3C85F7CE)},
      {"0d 39300000", command(Ping, {}, {}, 12345)},
      {"01 0200000000000000 2f61 0100000000000000 78", command(Set, {"/a"}, {"x"})},
      {"02 0200000000000000 2f61 0000000000000000 0100000000000000 79", command(CompareSet, {"/a"}, {"", "y"})},
      {"03 0200000000000000 2f61", command(Get, {"/a"})},
      {"04 0500000000000000 696e69742f 0100000000000000", command(Add, {"init/"}, {}, 1)},
      {"04 0200000000000000 2f61 fdffffffffffffff", command(Add, {"/a"}, {}, -3)},
      {"05 0100000000000000 0200000000000000 2f61", command(Check, {"/a"})},
      {"06 0200000000000000 0200000000000000 2f61 0200000000000000 2f62", command(Wait, {"/a", "/b"})},
      {"07", command(NumKeys)},
      {"08 0200000000000000 2f61", command(Delete, {"/a"})},
      {"09 0200000000000000 2f61 0100000000000000 7a", command(Append, {"/a"}, {"z"})},
      {"0a 0000000000000000", command(MultiGet)},
      {"0a 0100000000000000 0200000000000000 2f61", command(MultiGet, {"/a"})},
      {"0b 0200000000000000 0200000000000000 2f61 0100000000000000 31 0200000000000000 2f62 0000000000000000",
       command(MultiSet, {"/a", "/b"}, {"1", ""})},
      {"0c", command(CancelWait)},
      {"0e 0200000000000000 2f71 0100000000000000 31", command(QueuePush, {"/q"}, {"1"})},
      {"0f 0200000000000000 2f71", command(QueuePop, {"/q"})},
      {"10 0200000000000000 2f71", command(QueueLength, {"/q"})},
      {"11", command(ListKeys)},
      {"12 0200000000000000 2f62 0200000000000000", command(Barrier, {"/b"}, {}, 2)},
  };
}

void expect_same(const StoreCommand& got, const StoreCommand& wanted, std::string_view what) {
  EXPECT_EQ(got.op, wanted.op) << what;
  EXPECT_EQ(got.keys, wanted.keys) << what;
  EXPECT_EQ(got.values, wanted.values) << what;
  EXPECT_EQ(got.number, wanted.number) << what;
}

std::string error_of(std::string_view bytes, const CommandLimits& limits = {}) {
  CommandParser parser(limits);
  while (true) {
    const Result result = parser.feed(bytes);
    if (result == Result::Malformed) return parser.error();
    if (result == Result::NeedsBytes) return "needs bytes";
  }
}

TEST(StoreCommands, EveryCommandIsReadAsCaptured) {
  for (const Captured& sample : captured()) {
    CommandParser parser{{}};
    const std::string all = from_hex(sample.hex) + "rest";
    std::string_view bytes = all;
    ASSERT_EQ(parser.feed(bytes), Result::Command) << sample.hex;
    EXPECT_EQ(bytes, "rest") << sample.hex;
    expect_same(parser.command(), sample.command, sample.hex);
    EXPECT_EQ(parser.held_bytes(), 0U) << sample.hex;
  }
}

TEST(StoreCommands, EncodeWritesTheCapturedBytes) {
  for (const Captured& sample : captured()) {
    EXPECT_EQ(to_hex(encode(sample.command)), to_hex(from_hex(sample.hex))) << name(sample.command.op);
  }
}

TEST(StoreCommands, AStreamCutAnywhereGivesTheSameCommands) {
  std::string stream;
  for (const Captured& sample : captured()) stream += from_hex(sample.hex);
  for (size_t piece = 1; piece <= 40; ++piece) {
    CommandParser parser{{}};
    size_t found = 0;
    for (size_t at = 0; at < stream.size(); at += piece) {
      std::string_view bytes = std::string_view(stream).substr(at, piece);
      while (!bytes.empty()) {
        const Result result = parser.feed(bytes);
        ASSERT_NE(result, Result::Malformed) << parser.error();
        if (result == Result::Command) expect_same(parser.command(), captured().at(found++).command, "cut");
      }
    }
    EXPECT_EQ(found, captured().size()) << "in pieces of " << piece;
    EXPECT_EQ(parser.held_bytes(), 0U);
  }
}

TEST(StoreCommands, WhatIsHeldGrowsWithWhatHasComeNotWithWhatWasAnnounced) {
  CommandParser parser{{}};
  const std::string head = from_hex("01 0200000000000000 2f61 0000800000000000");  // a value of 8 MiB
  std::string_view bytes = head;
  EXPECT_EQ(parser.feed(bytes), Result::NeedsBytes);
  EXPECT_EQ(parser.held_bytes(), 2 * kBlobOverhead + 2);
  const std::string some(1000, 'x');
  bytes = some;
  EXPECT_EQ(parser.feed(bytes), Result::NeedsBytes);
  EXPECT_EQ(parser.held_bytes(), 2 * kBlobOverhead + 1002);
}

TEST(StoreCommands, LimitsAreLibtorchsAndTheirLastByteIsAllowed) {
  const std::string key(8 << 10, 'k');
  const std::string value(8 << 20, 'v');
  EXPECT_EQ(error_of(bytes_of(Set, {key}, {value})), "needs bytes");
  EXPECT_EQ(error_of(bytes_of(Get, {key + "k"})), "GET: the key has 8193 bytes; at most 8192 are allowed");
  EXPECT_EQ(error_of(bytes_of(Append, {"/a"}, {value + "v"})),
            "APPEND: the value has 8388609 bytes; at most 8388608 are allowed");
  EXPECT_EQ(error_of(bytes_of(Check, std::vector<std::string>(131'072))), "needs bytes");
  for (const StoreOp op : {Check, Wait, MultiGet, MultiSet}) {
    std::string head(1, static_cast<char>(op));
    put_i64(head, 131'073);
    EXPECT_EQ(error_of(head), std::string(name(op)) + ": 131073 keys in one command; at most 131072 are allowed");
  }
}

TEST(StoreCommands, AnUntruthfulLengthIsRefusedBeforeItsBytesCome) {
  EXPECT_NE(error_of(from_hex("03 ffffffffffffffff")).find("18446744073709551615"), std::string::npos);
  EXPECT_EQ(error_of(from_hex("01 0100000000000000 61 ffffffffffffff7f")),
            "SET: the value has 9223372036854775807 bytes; at most 8388608 are allowed");
  EXPECT_NE(error_of(from_hex("0b ffffffffffffffff")).find("keys in one command"), std::string::npos);
}

TEST(StoreCommands, ACommandIsBoundedAsAWhole) {
  const CommandLimits limits{.key_bytes = 100, .value_bytes = 100, .keys = 1000, .command_bytes = 1000};
  const std::vector<std::string> keys(6, std::string(100, 'k'));
  EXPECT_EQ(error_of(bytes_of(MultiGet, keys), limits), "needs bytes");
  const std::vector<std::string> more(7, std::string(100, 'k'));
  EXPECT_EQ(error_of(bytes_of(MultiGet, more), limits), "MULTI_GET: the command has more than 1000 bytes");
  // Empty keys are not free.
  const std::vector<std::string> empty(16);
  EXPECT_EQ(error_of(bytes_of(Wait, empty), limits), "WAIT: the command has more than 1000 bytes");
}

TEST(StoreCommands, AnUnknownByteIsNoCommandAndNothingIsReadAfterIt) {
  for (const int byte : {0x13, 0x47, 0x80, 0xff}) {
    CommandParser parser{{}};
    const std::string bytes(1, static_cast<char>(byte));
    std::string_view rest = bytes;
    EXPECT_EQ(parser.feed(rest), Result::Malformed);
    EXPECT_EQ(parser.error(), fmt::format("0x{:02x} is not a command of a TCPStore", byte));
    const std::string good = bytes_of(NumKeys);
    rest = good;
    EXPECT_EQ(parser.feed(rest), Result::Malformed);
    EXPECT_EQ(rest.size(), 1U);
  }
}

}  // namespace
}  // namespace lockstep::rendezvous
