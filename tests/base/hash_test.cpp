#include "lockstep/base/hash.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace lockstep {
namespace {

uint64_t hash_text(std::string_view text, uint64_t seed = 0) {
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())), seed);
}

/// The bytes of xxHash's own sanity check (tests/sanity_test.c).
std::vector<std::byte> sanity_bytes(size_t size) {
  std::vector<std::byte> bytes(size);
  uint64_t generator = 2654435761U;
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(generator >> 56);
    generator *= 11400714785074694797U;
  }
  return bytes;
}

TEST(HashBytes, GivesThePublishedValuesOfXxh64) {
  constexpr uint64_t kSeed = 2654435761U;
  struct Vector {
    size_t size;
    uint64_t seed;
    uint64_t hash;
  };
  for (const Vector& vector : {Vector{0, 0, 0xEF46DB3751D8E999}, Vector{0, kSeed, 0xAC75FDA2929B17EF},
                               Vector{1, 0, 0xE934A84ADB052768}, Vector{1, kSeed, 0x5014607643A9B4C3},
                               Vector{4, 0, 0x9136A0DCA57457EE}, Vector{14, 0, 0x8282DCC4994E35C8},
                               Vector{14, kSeed, 0xC3BD6BF63DEB6DF0}, Vector{222, 0, 0xB641AE8CB691C174},
                               Vector{222, kSeed, 0x20CB8AB7AE10C14A}}) {
    EXPECT_EQ(hash_bytes(sanity_bytes(vector.size), vector.seed), vector.hash)
        << vector.size << " bytes, seed " << vector.seed;
  }
  EXPECT_EQ(hash_text("abc"), 0x44BC2CF5AD770999);
  EXPECT_EQ(hash_text("Nobody inspects the spammish repetition"), 0xFBCEA83C8A378BF1);
}

TEST(PieceHash, DoesNotDependOnTheOrderOfPieces) {
  const auto a = sanity_bytes(100);
  const auto b = sanity_bytes(37);
  PieceHash forward;
  forward.add(0, a);
  forward.add(1, b);
  PieceHash first;
  first.add(1, b);
  PieceHash second;
  second.add(0, a);
  first.merge(second.value());
  EXPECT_EQ(forward.value(), first.value());
}

TEST(PieceHash, SeesSwappedAndChangedPieces) {
  const auto a = sanity_bytes(64);
  auto b = a;
  b[63] ^= std::byte{1};
  PieceHash straight;
  straight.add(0, a);
  straight.add(1, b);
  PieceHash swapped;
  swapped.add(0, b);
  swapped.add(1, a);
  EXPECT_NE(straight.value(), swapped.value());
}

TEST(ToHex, WritesSixteenDigits) { EXPECT_EQ(to_hex(0xABC), "0000000000000abc"); }

}  // namespace
}  // namespace lockstep
