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

/// A path that this processor cannot run is no test here, so ctest does not list it.
std::vector<PhiloxPath> paths_of_this_processor() {
  std::vector<PhiloxPath> paths{PhiloxPath::Plain};
  if (__builtin_cpu_supports("avx2")) paths.push_back(PhiloxPath::Avx2);
  if (__builtin_cpu_supports("avx512f")) paths.push_back(PhiloxPath::Avx512);
  return paths;
}

class RandomStreamPaths : public testing::TestWithParam<PhiloxPath> {
 protected:
  /// `count` words from `first` are those of the counter's definition, and nothing else is written.
  void expect_words(const RandomStream& stream, uint64_t first, uint64_t count) {
    constexpr size_t kGuard = 70;  // more than the widest path writes at once
    std::vector<uint32_t> filled(count + 2 * kGuard, 0xABABABAB);
    stream.fill(filled.data() + kGuard, first, count, GetParam());
    for (uint64_t i = 0; i < count; ++i) {
      ASSERT_EQ(filled[kGuard + i], stream.word(first + i)) << first << " + " << i << " of " << count;
    }
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(filled[i], 0xABABABAB) << "before " << first << ", " << count << " words";
      ASSERT_EQ(filled[kGuard + count + i], 0xABABABAB) << i << " words past " << first << ", " << count << " words";
    }
  }
};

constexpr RandomStream kStream{.seed = 42, .purpose = RandomPurpose::Dropout, .module = 3, .ordinal = 17, .segment = 2};

TEST_P(RandomStreamPaths, FillEqualsWordByWordAtEveryOffsetAndCount) {
  for (uint64_t offset = 0; offset < 5; ++offset) {
    for (uint64_t count = 0; count <= 200; ++count) expect_words(kStream, 1000 + offset, count);
  }
}

TEST_P(RandomStreamPaths, TheCarryOfTheBlockNumberReachesEveryLane) {
  constexpr uint64_t kCarry = uint64_t{4} << 32;  // the word that begins block 2^32
  for (uint64_t before = 0; before <= 80; ++before) expect_words(kStream, kCarry - before, 150);
  expect_words(kStream, ~uint64_t{0} - 160, 160);
}

TEST_P(RandomStreamPaths, BothHalvesOfTheOrdinalCount) {
  RandomStream stream = kStream;
  stream.ordinal = 0xFEDCBA9876543210;
  expect_words(stream, 3, 131);
}

INSTANTIATE_TEST_SUITE_P(All, RandomStreamPaths,
                         testing::ValuesIn(paths_of_this_processor()),
                         [](const auto& suite) {
                           return suite.param == PhiloxPath::Avx512 ? "Avx512"
                                  : suite.param == PhiloxPath::Avx2 ? "Avx2"
                                                                   : "Plain";
                         });

TEST(RandomStream, IsTheSameOnEveryMachine) {
  // Computed by an independent program from the description in philox.h. A change of the key changes every run that
  // uses dropout, so it must be seen.
  EXPECT_EQ(kStream.word(0), 2580458569U);
  EXPECT_EQ(kStream.word(123'456'789), 1615554989U);
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
