#include "lockstep/net/frame.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace lockstep::net {
namespace {

using State = ParsedFrame::State;
using namespace std::string_literals;

struct Pair {
  uint16_t number = 0;
  std::string text = {};
  template <class V>
  void visit(V& v) {
    v(number), v(text);
  }
  bool operator==(const Pair&) const = default;
};

enum class Colour : uint8_t { Red, Green };

struct Everything {
  bool yes = false;
  uint8_t u8 = 0;
  uint16_t u16 = 0;
  uint32_t u32 = 0;
  uint64_t u64 = 0;
  int32_t i32 = 0;
  int64_t i64 = 0;
  std::string text = {};
  std::vector<std::string> texts = {};
  std::vector<Pair> pairs = {};
  std::optional<Pair> maybe = {};
  Colour colour = Colour::Red;
  template <class V>
  void visit(V& v) {
    v(yes), v(u8), v(u16), v(u32), v(u64), v(i32), v(i64), v(text), v(texts);
    v.list(pairs, 6);
    v.optional(maybe);
    v.choice(colour, Colour::Green);
  }
  bool operator==(const Everything&) const = default;
};

Everything example() {
  return {.yes = true,
          .u8 = 0xfe,
          .u16 = 0xfedc,
          .u32 = 0xfedcba98,
          .u64 = 0xfedcba9876543210,
          .i32 = std::numeric_limits<int32_t>::min(),
          .i64 = -2,
          .text = "a\0b"s,
          .texts = {"", "xyz"},
          .pairs = {{1, "one"}, {2, ""}},
          .maybe = Pair{3, "three"},
          .colour = Colour::Green};
}

std::string written(Everything value) {
  FieldWriter writer;
  value.visit(writer);
  return writer.bytes();
}

TEST(Fields, RoundTrip) {
  Everything read;
  const std::string bytes = written(example());
  FieldReader reader(bytes);
  read.visit(reader);
  reader.finish();
  EXPECT_EQ(reader.problem(), "");
  EXPECT_EQ(read, example());
}

TEST(Fields, EveryShorterMessageIsAProblemAndReadsNothingBeyond) {
  const std::string bytes = written(example());
  for (size_t size = 0; size < bytes.size(); ++size) {
    // A copy of exactly that size, so that a sanitizer sees a read beyond it.
    const std::string cut(bytes.data(), size);
    FieldReader reader(cut);
    Everything read;
    read.visit(reader);
    reader.finish();
    EXPECT_FALSE(reader.ok()) << size << " of " << bytes.size();
  }
}

TEST(Fields, SpareBytesAreAProblem) {
  const std::string bytes = written(example()) + "x";
  FieldReader reader(bytes);
  Everything read;
  read.visit(reader);
  reader.finish();
  EXPECT_EQ(reader.problem(), "1 bytes too many");
}

TEST(Fields, ACountBeyondTheBytesAllocatesNothing) {
  FieldWriter writer;
  writer(uint32_t{0xffffffff});
  std::vector<std::string> texts;
  std::vector<Pair> pairs;
  std::string text;
  FieldReader(writer.bytes())(texts);
  FieldReader(writer.bytes())(text);
  FieldReader reader(writer.bytes());
  reader.list(pairs, 6);
  EXPECT_EQ(reader.problem(), "a count of 4294967295 where 0 bytes are left");
  EXPECT_EQ(texts.capacity() + pairs.capacity(), 0U);
  EXPECT_EQ(text, "");
}

TEST(Fields, ANumberThatStandsForNothingIsAProblem) {
  FieldReader truth("\2");
  bool yes = false;
  truth(yes);
  EXPECT_EQ(truth.problem(), "a truth value of 2");
  FieldReader choice("\2");
  Colour colour = Colour::Green;
  choice.choice(colour, Colour::Green);
  EXPECT_FALSE(choice.ok());
  EXPECT_EQ(colour, Colour::Red);
}

TEST(Frame, IsTakenApartByteByByte) {
  FieldWriter writer;
  writer(std::string_view("payload"));
  const std::string frame = writer.frame(9);
  ASSERT_EQ(frame.size(), 5 + 4 + 7U);
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_EQ(parse_frame(std::string_view(frame).substr(0, size), 64).state, State::Incomplete) << size;
  }
  const std::string two = frame + frame;
  const ParsedFrame parsed = parse_frame(two, 64);
  ASSERT_EQ(parsed.state, State::Complete);
  EXPECT_EQ(parsed.frame.type, 9);
  EXPECT_EQ(parsed.frame.payload, writer.bytes());
  EXPECT_EQ(parsed.frame.size_bytes, frame.size());
}

TEST(Frame, TooLargeIsToldFromFourBytes) {
  EXPECT_EQ(parse_frame("\x40\0\0\0"s, 64).state, State::Incomplete);
  const ParsedFrame parsed = parse_frame("\x41\0\0\0"s, 64);
  EXPECT_EQ(parsed.state, State::TooLarge);
  EXPECT_EQ(parsed.length, 65U);
  EXPECT_EQ(parse_frame("\xff\xff\xff\xff"s, 64).state, State::TooLarge);
}

}  // namespace
}  // namespace lockstep::net
