// Exact sums against 128-bit integer arithmetic, on all paths.
#include "lockstep/tensor/exact.h"

#include "lockstep/base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace lockstep::tensor {
namespace {

__extension__ using Int128 = __int128;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kSmallestDenormal = std::numeric_limits<float>::denorm_min();

std::vector<ExactPath> paths() {
  std::vector<ExactPath> found{ExactPath::Plain};
  if (best_exact_path() != ExactPath::Plain) {
    found.push_back(ExactPath::Avx2);
  }
  if (best_exact_path() == ExactPath::Avx512) {
    found.push_back(ExactPath::Avx512);
  }
  return found;
}

float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }

/// What one contribution must do, from first principles: frexp, 128-bit integers, no floating-point rounding.
struct Expected {
  int64_t added = 0;
  ExactFlags flags;
};

Expected expected(float c, int scale_bits, double limit) {
  if (!std::isfinite(c)) {
    return {.added = 0, .flags = {.range = false, .non_finite = true}};
  }
  if (std::ldexp(std::abs(static_cast<double>(c)), scale_bits) >= limit) {
    return {.added = 0, .flags = {.range = true, .non_finite = false}};
  }
  int exponent = 0;
  const float fraction = std::frexp(std::abs(c), &exponent);
  const auto mantissa = static_cast<Int128>(std::ldexp(fraction, 24));
  const int shift = exponent - 24 + scale_bits;  // |c| * 2^s = mantissa * 2^shift
  Int128 magnitude = 0;
  if (shift >= 0) {
    magnitude = mantissa << shift;
  } else if (shift > -40) {
    const Int128 unit = Int128{1} << -shift;
    const Int128 floor = mantissa / unit;
    const Int128 twice_rest = 2 * (mantissa - floor * unit);
    magnitude = floor + ((twice_rest > unit || (twice_rest == unit && floor % 2 == 1)) ? 1 : 0);
  }
  return {.added = static_cast<int64_t>(c < 0 ? -magnitude : magnitude), .flags = {}};
}

/// Adds all `values` to zeros with every path and compares element by element and flag by flag.
void expect_all_paths_right(const std::vector<float>& values, int scale_bits, double limit) {
  ExactFlags want_flags;
  std::vector<int64_t> want;
  for (const float value : values) {
    const Expected one = expected(value, scale_bits, limit);
    want.push_back(one.added + 7);
    want_flags.range |= one.flags.range;
    want_flags.non_finite |= one.flags.non_finite;
  }
  for (const ExactPath path : paths()) {
    std::vector<int64_t> acc(values.size(), 7);
    const ExactFlags flags = exact_add(acc, values, scale_bits, limit, path);
    EXPECT_EQ(flags.range, want_flags.range) << "path " << static_cast<int>(path);
    EXPECT_EQ(flags.non_finite, want_flags.non_finite) << "path " << static_cast<int>(path);
    const auto [got_at, want_at] = std::mismatch(acc.begin(), acc.end(), want.begin());
    ASSERT_TRUE(got_at == acc.end()) << "path " << static_cast<int>(path) << " s " << scale_bits << " limit " << limit
                                     << " value " << values[static_cast<size_t>(got_at - acc.begin())] << " gave "
                                     << *got_at << ", expected " << *want_at;
  }
}

std::vector<uint32_t> random_words(size_t count, uint64_t seed) {
  std::vector<uint32_t> words(count);
  RandomStream{.seed = seed}.fill(words.data(), 0, count);
  return words;
}

std::vector<float> random_bit_patterns(size_t count, uint64_t seed) {
  std::vector<float> values;
  for (const uint32_t word : random_words(count, seed)) {
    values.push_back(from_bits(word));
  }
  return values;
}

TEST(ExactLimit, IsTheLargestPowerOfTwoBelowTheQuotient) {
  EXPECT_EQ(exact_limit(1), 0x1p62);
  EXPECT_EQ(exact_limit(2), 0x1p61);
  EXPECT_EQ(exact_limit(3), 0x1p60);
  EXPECT_EQ(exact_limit(4), 0x1p60);
  EXPECT_EQ(exact_limit(5), 0x1p59);
  EXPECT_EQ(exact_limit(1'000'000), 0x1p42);
  EXPECT_EQ(exact_limit(int64_t{1} << 62), 1.0);
}

TEST(ExactAdd, IsRightOnAMillionRandomBitPatterns) {
  for (const int scale_bits : {0, 16, 32, 48, 62}) {
    expect_all_paths_right(random_bit_patterns(200'000, static_cast<uint64_t>(scale_bits)), scale_bits, exact_limit(5));
  }
}

TEST(ExactAdd, IsRightForEveryExponentAndScale) {
  std::vector<float> values;
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (const uint32_t mantissa : {0x000000U, 0x000001U, 0x400000U, 0x400001U, 0x3FFFFFU, 0x7FFFFFU, 0x555555U}) {
      values.push_back(from_bits(exponent << 23 | mantissa));
      values.push_back(-values.back());
    }
  }
  for (int scale_bits = 0; scale_bits <= 62; ++scale_bits) {
    expect_all_paths_right(values, scale_bits, exact_limit(1));
    expect_all_paths_right(values, scale_bits, 1.0);
  }
}

TEST(ExactAdd, BreaksTiesToEven) {
  std::vector<float> values;
  for (int integer = -40; integer <= 40; ++integer) {
    const float half = static_cast<float>(integer) + 0.5F;
    for (const float value : {half, std::nextafter(half, kInf), std::nextafter(half, -kInf)}) {
      values.push_back(std::ldexp(value, -48));
    }
  }
  expect_all_paths_right(values, 48, exact_limit(1));
  for (const ExactPath path : paths()) {
    std::vector<int64_t> acc(5, 0);
    exact_add(acc, std::vector<float>{0.5F, 1.5F, 2.5F, -0.5F, -1.5F}, 0, exact_limit(1), path);
    EXPECT_EQ(acc, (std::vector<int64_t>{0, 2, 2, 0, -2}));
  }
}

TEST(ExactAdd, FlagsExactlyFromTheLimitOn) {
  for (const int64_t num_contributions : {int64_t{1}, int64_t{2}, int64_t{7}, int64_t{1000}, int64_t{1} << 40}) {
    const double limit = exact_limit(num_contributions);
    const auto edge = static_cast<float>(std::ldexp(limit, -48));
    const float below = std::nextafter(edge, 0.0F);
    for (const ExactPath path : paths()) {
      for (const float sign : {1.0F, -1.0F}) {
        std::vector<int64_t> acc(1, 0);
        EXPECT_FALSE(exact_add(acc, std::vector<float>{sign * below}, 48, limit, path).any());
        EXPECT_EQ(acc[0], std::llrint(std::ldexp(static_cast<double>(sign * below), 48)));
        for (const float too_large : {edge, std::nextafter(edge, kInf), std::numeric_limits<float>::max()}) {
          std::vector<int64_t> untouched(1, 3);
          const ExactFlags flags = exact_add(untouched, std::vector<float>{sign * too_large}, 48, limit, path);
          EXPECT_TRUE(flags.range && !flags.non_finite);
          EXPECT_EQ(untouched[0], 3);
        }
      }
    }
  }
}

TEST(ExactAdd, KeepsToALimitThatIsNoPowerOfTwo) {
  // No float lies at the limit itself.
  const double limit = 1000.0000001;
  expect_all_paths_right({999.9999F, 1000.0F, 1000.0001F, -1000.0F, -1000.0001F}, 0, limit);
}

TEST(ExactAdd, LeavesNonFiniteAndDenormalValuesOut) {
  expect_all_paths_right({1.0F, kNaN, 2.0F}, 48, exact_limit(4));
  expect_all_paths_right({1.0F, kInf, -kInf}, 48, exact_limit(4));
  expect_all_paths_right({kNaN, 1e30F, 1.0F}, 48, exact_limit(4));
  expect_all_paths_right({kSmallestDenormal, -kSmallestDenormal, 1e-39F, -0.0F, 0.0F}, 62, exact_limit(1));
}

TEST(ExactAdd, HandlesEveryLengthAndAlignment) {
  const std::vector<float> values = random_bit_patterns(80, 3);
  for (size_t first = 0; first < 5; ++first) {
    for (size_t count = 0; count + first <= 70; ++count) {
      for (const ExactPath path : paths()) {
        std::vector<int64_t> acc(80, 11);
        const std::span<const float> part(values.data() + first, count);
        exact_add({acc.data() + first, count}, part, 30, exact_limit(1), path);
        for (size_t i = 0; i < acc.size(); ++i) {
          const bool inside = i >= first && i < first + count;
          ASSERT_EQ(acc[i], 11 + (inside ? expected(values[i], 30, exact_limit(1)).added : 0));
        }
      }
    }
  }
}

TEST(ExactAdd, FlagsTheLastElementOfAnyLength) {
  for (size_t count = 1; count <= 40; ++count) {
    std::vector<float> values(count, 1.0F);
    values.back() = kNaN;
    for (const ExactPath path : paths()) {
      std::vector<int64_t> acc(count, 0);
      EXPECT_TRUE(exact_add(acc, values, 48, exact_limit(1), path).non_finite);
      EXPECT_EQ(acc.back(), 0);
    }
  }
}

TEST(ExactAdd, DoesNotDependOnTheRoundingMode) {
  const std::vector<float> values = random_bit_patterns(4096, 9);
  for (const int mode : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    for (const ExactPath path : paths()) {
      std::vector<int64_t> want(values.size(), 0), got(values.size(), 0);
      exact_add(want, values, 48, exact_limit(8), path);
      std::fesetround(mode);
      exact_add(got, values, 48, exact_limit(8), path);
      std::fesetround(FE_TONEAREST);
      EXPECT_EQ(got, want);
    }
  }
}

TEST(ExactSum, IsTheSameInAnyOrderAndGroupingAndEqualTo128Bits) {
  // 257 contributions to 64 elements, with cancellation over 80 binary orders of magnitude.
  constexpr size_t kContributions = 257, kWidth = 64;
  const double limit = exact_limit(kContributions);
  std::vector<std::vector<float>> contributions(kContributions, std::vector<float>(kWidth));
  const std::vector<uint32_t> words = random_words(kContributions * kWidth, 21);
  std::vector<Int128> want(kWidth, 0);
  for (size_t c = 0; c < kContributions; ++c) {
    for (size_t i = 0; i < kWidth; ++i) {
      const uint32_t word = words[c * kWidth + i];
      const int exponent = static_cast<int>(word >> 24) % 80 - 76;
      const float size = std::ldexp(1.0F + static_cast<float>(word & 0xFFFF) * 0x1p-16F, exponent);
      contributions[c][i] = (word & 0x10000) != 0 ? size : -size;
      if (c % 2 == 1) {
        contributions[c][i] = -contributions[c - 1][i];
      }
      want[i] += expected(contributions[c][i], 48, limit).added;
    }
  }
  std::mt19937 random(5);
  std::vector<size_t> order(kContributions);
  std::iota(order.begin(), order.end(), size_t{0});
  for (int trial = 0; trial < 20; ++trial) {
    std::shuffle(order.begin(), order.end(), random);
    // Three partial sums, as of three processes, each on its own path.
    std::vector<std::vector<int64_t>> parts(3, std::vector<int64_t>(kWidth, 0));
    for (const size_t c : order) {
      const size_t part = random() % 3;
      const auto path = paths()[part % paths().size()];
      ASSERT_FALSE(exact_add(parts[part], contributions[c], 48, limit, path).any());
    }
    for (size_t i = 0; i < kWidth; ++i) {
      ASSERT_TRUE(Int128{parts[2][i] + parts[0][i] + parts[1][i]} == want[i]) << "element " << i;
    }
  }
}

TEST(ExactSum, NeverWrapsWithinItsLimits) {
  for (const int64_t num_contributions : {int64_t{1}, int64_t{3}, int64_t{1000}, int64_t{4096}}) {
    const double limit = exact_limit(num_contributions);
    const float largest = std::nextafter(static_cast<float>(std::ldexp(limit, -48)), 0.0F);
    for (const ExactPath path : paths()) {
      std::vector<int64_t> acc(17, 0);
      for (int64_t c = 0; c < num_contributions; ++c) {
        ASSERT_FALSE(exact_add(acc, std::vector<float>(17, largest), 48, limit, path).any());
      }
      const Int128 want = Int128{expected(largest, 48, limit).added} * num_contributions;
      EXPECT_TRUE(want < (Int128{1} << 62));
      EXPECT_TRUE(std::all_of(acc.begin(), acc.end(), [&](int64_t sum) { return Int128{sum} == want; }));
    }
  }
}

TEST(ExactAddBf16, EqualsTheFloatPathOnEveryBitPattern) {
  std::vector<uint16_t> bf16(65536);
  std::iota(bf16.begin(), bf16.end(), uint16_t{0});
  std::vector<float> widened;
  for (const uint16_t bits : bf16) {
    widened.push_back(from_bits(static_cast<uint32_t>(bits) << 16));
  }
  for (const int scale_bits : {0, 32, 48, 62}) {
    std::vector<int64_t> want(bf16.size(), -5);
    const ExactFlags want_flags = exact_add(want, widened, scale_bits, exact_limit(3), ExactPath::Plain);
    for (const ExactPath path : paths()) {
      std::vector<int64_t> got(bf16.size(), -5);
      const ExactFlags flags = exact_add_bf16(got, bf16, scale_bits, exact_limit(3), path);
      EXPECT_EQ(got, want);
      EXPECT_EQ(flags.range, want_flags.range);
      EXPECT_EQ(flags.non_finite, want_flags.non_finite);
    }
  }
}

TEST(ExactAddBf16, HandlesEveryLength) {
  for (size_t count = 1; count <= 40; ++count) {
    for (const ExactPath path : paths()) {
      std::vector<int64_t> acc(48, 1);
      std::vector<uint16_t> values(count, 0x3F80);  // 1.0
      values.back() = 0x7F80;                       // infinity
      EXPECT_TRUE(exact_add_bf16({acc.data(), count}, values, 4, exact_limit(1), path).non_finite);
      for (size_t i = 0; i < acc.size(); ++i) {
        ASSERT_EQ(acc[i], i + 1 < count ? 17 : 1);
      }
    }
  }
}

TEST(ExactSet, PutsWhatExactAddGivesOnZeros) {
  const std::vector<float> values = random_bit_patterns(4096 + 40, 17);
  std::vector<uint16_t> bf16;
  for (const float value : values) bf16.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  alignas(64) static std::array<int64_t, 4096 + 64> room;
  // Whole vectors at an aligned place, as in an accumulator, and every other length and place.
  for (const auto& [first, count] : std::vector<std::pair<size_t, size_t>>{
           {0, 4096}, {0, 16}, {8, 64}, {1, 4096}, {0, 17}, {0, 15}, {3, 5}, {0, 0}, {8, 4100}}) {
    for (const ExactPath path : paths()) {
      const std::span<const float> part(values.data(), count);
      const std::span<const uint16_t> part_bf16(bf16.data(), count);
      std::vector<int64_t> want(count, 0), want_bf16(count, 0);
      const ExactFlags flags = exact_add(want, part, 40, exact_limit(3), path);
      const ExactFlags flags_bf16 = exact_add_bf16(want_bf16, part_bf16, 40, exact_limit(3), path);
      const auto expect = [&](ExactFlags got_flags, ExactFlags want_flags, const std::vector<int64_t>& sums) {
        EXPECT_EQ(got_flags.range, want_flags.range);
        EXPECT_EQ(got_flags.non_finite, want_flags.non_finite);
        for (size_t i = 0; i < room.size(); ++i) {
          const bool inside = i >= first && i < first + count;
          ASSERT_EQ(room[i], inside ? sums[i - first] : 99) << "first " << first << " count " << count << " at " << i;
        }
      };
      room.fill(99);
      const ExactFlags got = exact_set({room.data() + first, count}, part, 40, exact_limit(3), path);
      expect(got, flags, want);
      room.fill(99);
      const ExactFlags got_bf16 = exact_set_bf16({room.data() + first, count}, part_bf16, 40, exact_limit(3), path);
      expect(got_bf16, flags_bf16, want_bf16);
    }
  }
}

TEST(ExactAddDouble, RoundsOnceAndFlags) {
  std::vector<int64_t> acc(6, 0);
  const std::vector<double> values{0x1.8p-48, -0x1p-49, 1.0 + 0x1p-48, 0x1p14, std::nan(""), 0x1p13};
  const ExactFlags flags = exact_add_double(acc, values, 48, exact_limit(1));
  EXPECT_TRUE(flags.range && flags.non_finite);
  EXPECT_EQ(acc, (std::vector<int64_t>{2, 0, (int64_t{1} << 48) + 1, 0, 0, int64_t{1} << 61}));
}

TEST(ExactToFloat, RoundsThroughDoubleOnAllPaths) {
  std::vector<int64_t> sums{0, 1, -1, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  const std::vector<uint32_t> words = random_words(40'000, 8);
  for (size_t i = 0; i + 1 < words.size(); i += 2) {
    const auto bits = static_cast<uint64_t>(words[i]) << 32 | words[i + 1];
    sums.push_back(static_cast<int64_t>(bits) >> (words[i] % 64));
  }
  for (const int scale_bits : {0, 48, 62}) {
    for (const ExactPath path : paths()) {
      std::vector<float> out(sums.size());
      exact_to_float(out, sums, scale_bits, path);
      for (size_t i = 0; i < sums.size(); ++i) {
        const auto want = static_cast<float>(std::ldexp(static_cast<double>(sums[i]), -scale_bits));
        ASSERT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(want)) << sums[i];
      }
    }
  }
}

TEST(ExactSum, IsAtLeastAsCloseToDoubleAsFloatSums) {
  constexpr size_t kContributions = 64, kWidth = 4096;
  std::vector<int64_t> acc(kWidth, 0);
  std::vector<float> floats(kWidth, 0);
  std::vector<double> reference(kWidth, 0);
  for (size_t c = 0; c < kContributions; ++c) {
    std::vector<float> values;
    for (const uint32_t word : random_words(kWidth, 100 + c)) {
      values.push_back((static_cast<float>(word) * 0x1p-32F - 0.5F) * 1e-3F);
    }
    ASSERT_FALSE(exact_add(acc, values, 48, exact_limit(kContributions)).any());
    for (size_t i = 0; i < kWidth; ++i) {
      floats[i] += values[i];
      reference[i] += static_cast<double>(values[i]);
    }
  }
  std::vector<float> exact(kWidth);
  exact_to_float(exact, acc, 48);
  double exact_error = 0, float_error = 0;
  for (size_t i = 0; i < kWidth; ++i) {
    exact_error += std::pow(static_cast<double>(exact[i]) - reference[i], 2);
    float_error += std::pow(static_cast<double>(floats[i]) - reference[i], 2);
  }
  EXPECT_LE(exact_error, float_error);
}

}  // namespace
}  // namespace lockstep::tensor
