#include "lockstep/comm/packed_sums.h"


#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <vector>

namespace lockstep::comm {
namespace {

std::vector<int64_t> values_of_width(size_t count, int bits, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> values(count);
  for (int64_t& value : values) {
    value = bits == 0 ? 0 : static_cast<int64_t>(random()) >> (64 - bits);
  }
  return values;
}

/// Packs, adds to sums that are there already, and takes them off again.
void expect_lossless(const std::vector<int64_t>& values) {
  std::vector<uint64_t> packed(packed_words_at_most(values.size()) + 1, 0xABABABABABABABAB);
  const size_t words = pack_sums(values, std::span(packed).first(packed.size() - 1));
  ASSERT_LE(words, packed.size() - 1);
  EXPECT_EQ(packed.back(), 0xABABABABABABABAB) << "wrote past its room";
  std::vector<int64_t> sums(values.size());
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<int64_t>(i * 0x9E3779B97F4A7C15);
  ASSERT_TRUE(add_packed_sums(std::span(packed).first(words), sums));
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto got = static_cast<int64_t>(static_cast<uint64_t>(sums[i]) - i * 0x9E3779B97F4A7C15);
    ASSERT_EQ(got, values[i]) << "value " << i << " of " << values.size();
  }
}

TEST(PackedSums, LoseNothingAtAnyWidthAndSize) {
  for (int bits = 0; bits <= 64; ++bits) expect_lossless(values_of_width(2 * kTileValues, bits, static_cast<uint64_t>(bits)));
  for (const size_t count : {0, 1, 15, 16, 1023, 1024, 1025, 5000}) expect_lossless(values_of_width(count, 37, count));
  std::vector<int64_t> ends(1024, std::numeric_limits<int64_t>::min());
  ends[5] = std::numeric_limits<int64_t>::max();
  ends[1000] = 0;
  expect_lossless(ends);
}

TEST(PackedSums, ATileTakesTheBitsOfItsLargest) {
  std::vector<int64_t> values(3 * kTileValues, 0);
  values[0] = -8;                          // folded: 15, so 4 bits
  values[2 * kTileValues] = int64_t{1} << 39;  // folded: 2^40, so 41 bits
  std::vector<uint64_t> packed(packed_words_at_most(values.size()));
  EXPECT_EQ(pack_sums(values, packed), 3 + 16 * (4 + 0 + 41));
}

TEST(PackedSums, WhatWasNotPackedIsRefused) {
  const std::vector<int64_t> values = values_of_width(2000, 20, 1);
  std::vector<uint64_t> packed(packed_words_at_most(values.size()));
  packed.resize(pack_sums(values, packed));
  std::vector<int64_t> sums(values.size());
  EXPECT_FALSE(add_packed_sums(std::span(packed).first(packed.size() - 1), sums)) << "cut off";
  EXPECT_FALSE(add_packed_sums(packed, std::span(sums).first(1000))) << "too long";
  packed[0] = 65;
  EXPECT_FALSE(add_packed_sums(packed, sums)) << "no such width";
}

}  // namespace
}  // namespace lockstep::comm
