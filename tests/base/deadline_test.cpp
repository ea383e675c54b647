#include "lockstep/base/deadline.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Deadline, CountsDownToZero) {
  const Deadline deadline = Deadline::in(std::chrono::hours(1));
  EXPECT_FALSE(deadline.passed());
  EXPECT_LE(deadline.remaining(), std::chrono::hours(1));
  EXPECT_GT(deadline.remaining(), std::chrono::minutes(59));
  const Deadline passed = Deadline::at(Clock::now() - std::chrono::seconds(1));
  EXPECT_TRUE(passed.passed());
  EXPECT_EQ(passed.remaining(), Milliseconds(0));
}

TEST(Deadline, TheLongestSpanDoesNotOverflow) {
  const Deadline deadline = Deadline::in(Milliseconds::max());
  EXPECT_FALSE(deadline.passed());
  EXPECT_GT(deadline.remaining(), std::chrono::hours(24 * 365));
}

}  // namespace
}  // namespace lockstep
