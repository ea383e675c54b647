#include "lockstep/base/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace lockstep {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kMax = std::numeric_limits<double>::max();
constexpr double kDenormal = std::numeric_limits<double>::denorm_min();

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

/// Any finite double, every exponent as likely as any other.
double any_finite(std::mt19937_64& random) {
  while (true) {
    const auto value = std::bit_cast<double>(random());
    if (std::isfinite(value)) return value;
  }
}

/// Nearest double of a 128-bit integer, ties to even, by integer arithmetic.
__extension__ using Int128 = __int128;
double nearest(Int128 value) {
  const bool negative = value < 0;
  Int128 magnitude = negative ? -value : value;
  int exponent = 0;
  bool sticky = false;
  while (magnitude >= Int128{1} << 54) {
    sticky = sticky || (magnitude & 1) != 0;
    magnitude >>= 1;
    ++exponent;
  }
  if (magnitude >= Int128{1} << 53) {
    const bool half = (magnitude & 1) != 0;
    magnitude >>= 1;
    ++exponent;
    if (half && (sticky || (magnitude & 1) != 0)) ++magnitude;
  }
  const double result = std::ldexp(static_cast<double>(static_cast<int64_t>(magnitude)), exponent);
  return negative ? -result : result;
}

TEST(ExactSum, OfNothingIsPlusZero) { EXPECT_EQ(bits(ExactSum().value()), bits(0.0)); }

TEST(ExactSum, OfOneValueIsThatValue) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    const double value = any_finite(random);
    if (value == 0) continue;
    ASSERT_EQ(bits(sum_of({value}).value()), bits(value)) << value;
  }
  for (const double value : {kMax, -kMax, kDenormal, -kDenormal, std::numeric_limits<double>::min(), 1.0, -1.0}) {
    EXPECT_EQ(bits(sum_of({value}).value()), bits(value)) << value;
  }
}

TEST(ExactSum, OfTwoValuesIsTheirRoundedSum) {
  std::mt19937_64 random(2);
  std::uniform_int_distribution<int> distance(-60, 60);
  for (int i = 0; i < 20'000; ++i) {
    const double a = any_finite(random);
    // Exponents near each other, where rounding, ties and cancellation happen.
    int unused = 0;
    const double b = std::ldexp(std::frexp(any_finite(random), &unused), std::ilogb(a) + distance(random));
    if (a + b == 0) continue;                                     // the sign of zero is fixed here
    ASSERT_EQ(sum_of({a, b}).value(), a + b) << a << " + " << b;  // IEEE addition of two rounds once
  }
}

TEST(ExactSum, EqualsA128BitReference) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    ExactSum sum;
    Int128 reference = 0;  // in units of 2^-40
    for (int i = 0; i < 200; ++i) {
      const auto units = static_cast<int64_t>(random()) >> (random() % 63);
      const double value = std::ldexp(static_cast<double>(units >> 11), 11 - 40);
      sum.add(value);
      reference += (Int128{units} >> 11) * 2048;
    }
    ASSERT_EQ(bits(sum.value()), bits(std::ldexp(nearest(reference), -40))) << "round " << round;
  }
}

TEST(ExactSum, CancellationLeavesWhatIsLeft) {
  EXPECT_EQ(sum_of({1e300, 1, -1e300}).value(), 1.0);
  EXPECT_EQ(sum_of({kMax, kDenormal, -kMax}).value(), kDenormal);
  EXPECT_EQ(bits(sum_of({-1e300, 1e300}).value()), bits(0.0));
  EXPECT_EQ(sum_of({-1e300, -1e-300, 1e300}).value(), -1e-300);
}

TEST(ExactSum, TiesGoToEvenAndOneBitFarBelowDecides) {
  const double ulp = std::ldexp(1.0, -52);
  EXPECT_EQ(sum_of({1.0, ulp / 2}).value(), 1.0);
  EXPECT_EQ(sum_of({1.0 + ulp, ulp / 2}).value(), 1.0 + 2 * ulp);
  EXPECT_EQ(sum_of({1.0, ulp / 2, kDenormal}).value(), 1.0 + ulp);
  EXPECT_EQ(sum_of({1.0 + ulp, ulp / 2, -kDenormal}).value(), 1.0 + ulp);
  EXPECT_EQ(sum_of({-1.0, -ulp / 2, -kDenormal}).value(), -1.0 - ulp);
}

TEST(ExactSum, DenormalsAddExactly) {
  ExactSum sum;
  for (int i = 0; i < 1000; ++i) sum.add(3 * kDenormal);
  EXPECT_EQ(sum.value(), 3000 * kDenormal);
  EXPECT_EQ(sum_of({std::numeric_limits<double>::min(), -kDenormal}).value(),
            std::numeric_limits<double>::min() - kDenormal);
}

TEST(ExactSum, OverflowsOnlyInTheResult) {
  EXPECT_EQ(sum_of({kMax, kMax}).value(), kInfinity);
  EXPECT_EQ(sum_of({-kMax, -kMax}).value(), -kInfinity);
  EXPECT_EQ(sum_of({kMax, kMax, -kMax}).value(), kMax);
  // Half a unit in the last place of the largest double rounds to infinity, less does not.
  const double half_ulp = std::ldexp(1.0, 970);
  EXPECT_EQ(sum_of({kMax, half_ulp}).value(), kInfinity);
  EXPECT_EQ(sum_of({kMax, std::nextafter(half_ulp, 0.0)}).value(), kMax);
}

TEST(ExactSum, NonFiniteValuesActAsInIeeeAddition) {
  EXPECT_TRUE(std::isnan(sum_of({1, kNan, 2}).value()));
  EXPECT_EQ(sum_of({1, kInfinity, -kMax}).value(), kInfinity);
  EXPECT_EQ(sum_of({1, -kInfinity}).value(), -kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, -kInfinity}).value()));
}

TEST(ExactSum, OrderAndGroupingDoNotMatter) {
  std::mt19937_64 random(4);
  std::vector<double> values;
  for (int i = 0; i < 500; ++i) values.push_back(any_finite(random));
  for (int i = 0; i < 250; ++i) values.push_back(-values[static_cast<size_t>(i)]);
  const ExactSum reference = sum_of(values);
  for (int round = 0; round < 50; ++round) {
    std::shuffle(values.begin(), values.end(), random);
    std::vector<ExactSum> parts(1 + random() % 7);
    for (const double value : values) parts[random() % parts.size()].add(value);
    ExactSum merged;
    for (const ExactSum& part : parts) merged.merge(part);
    ASSERT_EQ(bits(merged.value()), bits(reference.value()));
    ASSERT_EQ(merged.words(), reference.words());
  }
}

TEST(ExactSum, WordsAddOverProcessesAsIntegers) {
  std::mt19937_64 random(5);
  for (const bool with_non_finite : {false, true}) {
    std::vector<ExactSum> parts(8);
    ExactSum merged;
    for (ExactSum& part : parts) {
      for (int i = 0; i < 100; ++i) part.add(any_finite(random));
      merged.merge(part);
    }
    if (with_non_finite) {
      parts[3].add(-kInfinity);
      merged.add(-kInfinity);
    }
    std::array<int64_t, ExactSum::kWords> total{};
    for (const ExactSum& part : parts) {
      const auto words = part.words();
      for (size_t i = 0; i < total.size(); ++i) total[i] += words[i];
    }
    const ExactSum sum = ExactSum::from_words(total);
    EXPECT_EQ(bits(sum.value()), bits(merged.value()));
    EXPECT_EQ(sum.words(), merged.words());
  }
}

TEST(ExactSum, WordsReadBack) {
  const ExactSum sum = sum_of({-3.5, 1e-310, kMax, kInfinity});
  EXPECT_EQ(ExactSum::from_words(sum.words()).words(), sum.words());
}

}  // namespace
}  // namespace lockstep
