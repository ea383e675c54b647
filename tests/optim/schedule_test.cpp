#include "lockstep/optim/schedule.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace lockstep::optim {
namespace {

using Kind = Schedule::Kind;

void expect_factors(const Schedule& schedule, const std::vector<double>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_NEAR(schedule.factor(static_cast<int64_t>(i) + 1), want[i], 1e-15) << "update " << i + 1;
  }
}

TEST(Schedule, LinearFallsFromThePeak) {
  expect_factors({.kind = Kind::Linear, .total_updates = 6},
                 {1, 5.0 / 6, 4.0 / 6, 3.0 / 6, 2.0 / 6, 1.0 / 6, 0, 0});
}

TEST(Schedule, LinearWarmsUpFromZero) {
  expect_factors({.kind = Kind::Linear, .warmup_updates = 3, .total_updates = 7},
                 {0, 1.0 / 3, 2.0 / 3, 1, 3.0 / 4, 2.0 / 4, 1.0 / 4, 0});
}

TEST(Schedule, CosineFollowsHalfAWave) {
  const double pi = std::acos(-1.0);
  expect_factors({.kind = Kind::Cosine, .warmup_updates = 2, .total_updates = 6},
                 {0, 0.5, 1, 0.5 * (1 + std::cos(pi / 4)), 0.5, 0.5 * (1 + std::cos(3 * pi / 4)), 0});
  expect_factors({.kind = Kind::Cosine, .total_updates = 2}, {1, 0.5, 0});
}

TEST(Schedule, ConstantIgnoresWarmupUnlessNamedSo) {
  expect_factors({.kind = Kind::Constant, .warmup_updates = 2, .total_updates = 4}, {1, 1, 1, 1});
  expect_factors({.kind = Kind::ConstantWithWarmup, .warmup_updates = 2, .total_updates = 4}, {0, 0.5, 1, 1, 1});
}

TEST(Schedule, WarmupAsLongAsTheRunDividesByOne) {
  expect_factors({.kind = Kind::Linear, .warmup_updates = 4, .total_updates = 4}, {0, 0.25, 0.5, 0.75, 0});
  expect_factors({.kind = Kind::Cosine, .warmup_updates = 4, .total_updates = 4}, {0, 0.25, 0.5, 0.75, 1});
  expect_factors({.kind = Kind::Linear, .warmup_updates = 10, .total_updates = 4}, {0, 0.1, 0.2, 0.3});
}

TEST(ScheduleKind, IsKnownByHuggingFacesName) {
  EXPECT_EQ(schedule_kind_from_name("linear"), Kind::Linear);
  EXPECT_EQ(schedule_kind_from_name("cosine"), Kind::Cosine);
  EXPECT_EQ(schedule_kind_from_name("constant"), Kind::Constant);
  EXPECT_EQ(schedule_kind_from_name("constant_with_warmup"), Kind::ConstantWithWarmup);
  try {
    schedule_kind_from_name("polynomial");
    FAIL() << "polynomial was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_NE(std::string(error.what()).find("polynomial"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("constant_with_warmup"), std::string::npos);
  }
}

TEST(WarmupUpdates, CutsNumbersAndRoundsSharesUp) {
  EXPECT_EQ(warmup_updates(0, 100), 0);
  EXPECT_EQ(warmup_updates(1, 100), 1);
  EXPECT_EQ(warmup_updates(7.9, 100), 7);
  EXPECT_EQ(warmup_updates(0.03, 10), 1);
  EXPECT_EQ(warmup_updates(0.1, 64), 7);
  EXPECT_EQ(warmup_updates(0.5, 9), 5);
  EXPECT_EQ(warmup_updates(0.25, 8), 2);
  EXPECT_THROW(warmup_updates(-1, 10), Error);
  EXPECT_THROW(warmup_updates(std::numeric_limits<double>::quiet_NaN(), 10), Error);
  EXPECT_THROW(warmup_updates(std::numeric_limits<double>::infinity(), 10), Error);
}

}  // namespace
}  // namespace lockstep::optim
