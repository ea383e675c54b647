#include "lockstep/base/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using Counter = std::array<uint32_t, 4>;
using Key = std::array<uint32_t, 2>;

// The three vectors for philox4x32 with 10 rounds in Random123's tests/kat_vectors.
TEST(Philox, GivesTheAnswersOfRandom123) {
  EXPECT_EQ(philox4x32(Key{0, 0}, Counter{0, 0, 0, 0}), (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32(Key{kOnes, kOnes}, Counter{kOnes, kOnes, kOnes, kOnes}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32(Key{0xa4093822, 0x299f31d0}, Counter{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, FillEqualsWordByWordAtEveryAlignment) {
  const RandomStream stream{.seed = 42, .purpose = RandomPurpose::Dropout, .module = 3, .ordinal = 17, .segment = 2};
  for (const uint64_t base : {uint64_t{0}, uint64_t{1} << 34, ~uint64_t{0} - 40}) {
    for (uint64_t offset = 0; offset < 5; ++offset) {
      for (const uint64_t count : {0, 1, 2, 3, 4, 5, 7, 8, 30}) {
        std::vector<uint32_t> filled(count + 1, 0xABABABAB);
        stream.fill(filled.data(), base + offset, count);
        for (uint64_t i = 0; i < count; ++i) {
          ASSERT_EQ(filled[i], stream.word(base + offset + i)) << base << " + " << offset << " + " << i;
        }
        ASSERT_EQ(filled[count], 0xABABABAB) << "fill wrote past its end";
      }
    }
  }
}

TEST(RandomStream, IsTheSameOnEveryMachine) {
  const RandomStream stream{.seed = 42, .purpose = RandomPurpose::Dropout, .module = 3, .ordinal = 17, .segment = 2};
  // Computed by an independent program from the description in philox.h. A change of the key changes every run that
  // uses dropout, so it must be seen.
  EXPECT_EQ(stream.word(0), 2580458569U);
  EXPECT_EQ(stream.word(123'456'789), 1615554989U);
}

TEST(RandomStream, EveryPartOfTheNameMatters) {
  const RandomStream base{.seed = 1, .purpose = RandomPurpose::Dropout, .module = 1, .ordinal = 1, .segment = 1};
  std::set<uint32_t> first_words;
  size_t num_streams = 0;
  const auto add = [&](RandomStream stream) {
    first_words.insert(stream.word(0));
    ++num_streams;
  };
  for (uint32_t i = 2; i < 100; ++i) {
    RandomStream stream = base;
    stream.seed = i;
    add(stream);
    stream = base;
    stream.module = i;
    add(stream);
    stream = base;
    stream.ordinal = i;
    add(stream);
    stream = base;
    stream.segment = i;
    add(stream);
  }
  RandomStream stream = base;
  stream.purpose = RandomPurpose::Fingerprint;
  add(stream);
  stream = base;
  stream.seed += uint64_t{1} << 32;
  add(stream);
  stream = base;
  stream.ordinal += uint64_t{1} << 32;
  add(stream);
  // 395 words of 32 bits: two are equal by chance with 2e-5, and the words are fixed.
  EXPECT_EQ(first_words.size(), num_streams);
}

TEST(RandomStream, UniformLiesInTheUnitIntervalAndIsEven) {
  const RandomStream stream{.seed = 7};
  constexpr int kDraws = 100'000;
  double sum = 0;
  for (uint64_t i = 0; i < kDraws; ++i) {
    const float value = stream.uniform(i);
    ASSERT_GE(value, 0.0F);
    ASSERT_LT(value, 1.0F);
    sum += static_cast<double>(value);
  }
  // The mean of n draws has the standard deviation sqrt(1 / 12 n); five of them are allowed.
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / (12.0 * kDraws)));
}

TEST(RandomStream, AModuleBeyondItsBitsIsRefused) {
  const RandomStream stream{.module = 1U << 24};
  EXPECT_THROW(stream.word(0), Error);
}

}  // namespace
}  // namespace lockstep
