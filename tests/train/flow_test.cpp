// When a run logs, evaluates and saves, against transformers' rules.
#include "lockstep/train/flow.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::train {
namespace {

/// "L", "E" and "S" of every update of a run of `total` with `per_epoch` updates in an epoch, "." for none.
std::string course(const FlowOptions& options, int64_t total, int64_t per_epoch) {
  std::string text;
  for (int64_t update = 1; update <= total; ++update) {
    const FlowPoint point{.update = update,
                          .total_updates = total,
                          .ends_epoch = update % per_epoch == 0 || update == total,
                          .epoch = static_cast<double>(update) / static_cast<double>(per_epoch)};
    const FlowDecision decision = after_update(options, point);
    std::string what;
    if (decision.log) what += "L";
    if (decision.evaluate) what += "E";
    if (decision.save) what += "S";
    text += (what.empty() ? "." : what) + " ";
  }
  text.pop_back();
  return text;
}

TEST(Flow, StepsCountUpdatesAndTheEndIsEvaluatedAndSaved) {
  FlowOptions options;
  options.logging_steps = 3;
  options.evaluation = options.saving = Strategy::Steps;
  options.eval_steps = 2;
  options.save_steps = 4;
  EXPECT_EQ(course(options, 7, 100), ". E L ES . LE ES");
}

TEST(Flow, ALastUpdateThatIsDueAnywayIsDoneOnce) {
  FlowOptions options;
  options.logging = Strategy::No;
  options.evaluation = options.saving = Strategy::Steps;
  options.eval_steps = options.save_steps = 3;
  EXPECT_EQ(course(options, 6, 100), ". . ES . . ES");
}

TEST(Flow, EpochsEndWithAllThree) {
  FlowOptions options;
  options.logging = options.evaluation = options.saving = Strategy::Epoch;
  EXPECT_EQ(course(options, 7, 3), ". . LES . . LES LES") << "an epoch that is cut short ends too";
}

TEST(Flow, TheFirstStepIsLoggedIfAsked) {
  FlowOptions options;
  options.logging_steps = 4;
  options.logging_first_step = true;
  EXPECT_EQ(course(options, 5, 100), "L . . L .");
}

TEST(Flow, DelayCountsAsTheStrategyDoes) {
  FlowOptions options;
  options.logging = Strategy::No;
  options.evaluation = Strategy::Steps;
  options.eval_steps = 1;
  options.eval_delay = 3;
  EXPECT_EQ(course(options, 4, 100), ". . E E");
  options.evaluation = Strategy::Epoch;
  options.eval_delay = 2;
  EXPECT_EQ(course(options, 6, 2), ". . . E . E");
}

TEST(Flow, NoMeansNever) {
  FlowOptions options;
  options.logging = options.evaluation = options.saving = Strategy::No;
  EXPECT_EQ(course(options, 4, 2), ". . . .");
}

TEST(StepsOf, SharesAreRoundedUp) {
  EXPECT_EQ(steps_of(500, 20), 500);
  EXPECT_EQ(steps_of(0.1, 25), 3);
  EXPECT_EQ(steps_of(0.001, 25), 1);
  EXPECT_EQ(steps_of(1, 25), 1);
}

}  // namespace
}  // namespace lockstep::train
