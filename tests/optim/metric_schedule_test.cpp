#include "lockstep/optim/metric_schedule.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace lockstep::optim {
namespace {

using Kind = Schedule::Kind;

TEST(MetricSchedule, ReducesAfterPatience) {
  MetricSchedule schedule(Kind::ReduceOnPlateau, R"({"patience": 1, "factor": 0.5})", 1);
  EXPECT_EQ(schedule.learning_rate(), 1);
  for (const double metric : {3.0, 2.0, 2.0}) {
    schedule.step(metric);
    EXPECT_EQ(schedule.learning_rate(), 1) << metric;
  }
  schedule.step(2.0);
  EXPECT_EQ(schedule.learning_rate(), 0.5);
}

TEST(MetricSchedule, ANaNIsNoImprovement) {
  for (const Kind kind : {Kind::ReduceOnPlateau, Kind::Greedy}) {
    MetricSchedule schedule(kind, R"({"patience": 0, "factor": 0.5, "min_lr": 0})", 1);
    schedule.step(std::numeric_limits<double>::quiet_NaN());
    EXPECT_EQ(schedule.learning_rate(), 0.5);
  }
}

TEST(MetricSchedule, GoesOnFromItsStateAsIfNothingHadHappened) {
  const std::string kwargs = R"({"patience": 1, "factor": 0.7, "cooldown": 1, "warmup": 1, "smooth": true,
                                 "window_size": 3, "min_lr": 0.2, "reset_start": 2})";
  const auto metric = [](int k) { return 1.0 / (1 + k % 7) + 0.01 * k; };
  MetricSchedule whole(Kind::Greedy, kwargs, 0.5);
  for (int cut = 0; cut < 25; ++cut) {
    MetricSchedule resumed(Kind::Greedy, kwargs, 0.5);
    resumed.restore(whole.state(), "trainer_state.json");
    EXPECT_EQ(resumed.state(), whole.state());
    MetricSchedule other(Kind::Greedy, kwargs, 0.5);
    other.restore(whole.state(), "trainer_state.json");
    for (int k = cut; k < 25; ++k) {
      resumed.step(metric(k));
      other.step(metric(k));
      EXPECT_EQ(resumed.learning_rate(), other.learning_rate());
    }
    MetricSchedule uninterrupted(Kind::Greedy, kwargs, 0.5);
    for (int k = 0; k < 25; ++k) uninterrupted.step(metric(k));
    EXPECT_EQ(resumed.state(), uninterrupted.state()) << "cut before evaluation " << cut;
    whole.step(metric(cut));
  }
}

TEST(MetricSchedule, ABrokenStateIsNamed) {
  MetricSchedule schedule(Kind::ReduceOnPlateau, std::nullopt, 1);
  const std::string before = schedule.state();
  for (const char* text : {"", "{}", R"({"learning_rate": "x"})"}) {
    try {
      schedule.restore(text, "checkpoint-3/trainer_state.json");
      ADD_FAILURE() << text << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_NE(std::string(error.what()).find("checkpoint-3/trainer_state.json"), std::string::npos) << error.what();
    }
  }
  EXPECT_EQ(schedule.state(), before);
}

TEST(MetricSchedule, ArgumentsAreChecked) {
  EXPECT_THROW(MetricSchedule(Kind::ReduceOnPlateau, R"({"max_lr": 1})", 1), Error) << "greedy's";
  EXPECT_THROW(MetricSchedule(Kind::Greedy, R"({"factor": 1})", 1), Error);
  EXPECT_THROW(MetricSchedule(Kind::Greedy, R"({"mode": "best"})", 1), Error);
}

}  // namespace
}  // namespace lockstep::optim
