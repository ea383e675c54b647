#include "lockstep/optim/schedule.h"

#include "lockstep/base/error.h"
#include "lockstep/optim/options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
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

Schedule made(const std::string& name, const std::string& kwargs, double warmup_steps = 0, int64_t total = 100) {
  OptimOptions options;
  options.learning_rate = 1e-3;
  options.lr_scheduler_type = name;
  if (!kwargs.empty()) options.lr_scheduler_kwargs = kwargs;
  options.warmup_steps = warmup_steps;
  return make_schedule(options, total);
}

TEST(Schedule, ReachesItsCornersExactly) {
  const Schedule restarts = made("cosine_with_restarts", R"({"num_cycles": 4})");
  EXPECT_EQ(restarts.factor(1), 1);
  EXPECT_EQ(restarts.factor(26), 1) << "a restart";
  EXPECT_EQ(restarts.factor(101), 0);
  EXPECT_DOUBLE_EQ(made("polynomial", R"({"lr_end": 1e-4, "power": 3})").factor(101), 0.1);
  EXPECT_DOUBLE_EQ(made("polynomial", "").factor(101), 1e-7 / 1e-3);
  EXPECT_DOUBLE_EQ(made("inverse_sqrt", "", 25).factor(101), 0.5);
  EXPECT_DOUBLE_EQ(made("cosine_with_min_lr", R"({"min_lr": 2e-4})").factor(101), 0.2);
  EXPECT_EQ(made("cosine_warmup_with_min_lr", R"({"min_lr_rate": 0.1})", 10).factor(10), 1) << "no update is wasted";
  EXPECT_DOUBLE_EQ(made("cosine_warmup_with_min_lr", R"({"min_lr_rate": 0.1})", 10).factor(100), 0.1);
  const Schedule stable = made("warmup_stable_decay", R"({"num_decay_steps": 20, "min_lr_ratio": 0.5})", 10);
  EXPECT_EQ(stable.factor(1), 0.5);
  EXPECT_EQ(stable.factor(11), 1);
  EXPECT_EQ(stable.factor(80), 1);
  EXPECT_EQ(stable.factor(101), 0.5);
}

TEST(ScheduleKind, IsKnownByHuggingFacesName) {
  EXPECT_EQ(schedule_kind_from_name("linear"), Kind::Linear);
  EXPECT_EQ(schedule_kind_from_name("constant_with_warmup"), Kind::ConstantWithWarmup);
  EXPECT_EQ(schedule_kind_from_name("reduce_lr_on_plateau"), Kind::ReduceOnPlateau);
  try {
    schedule_kind_from_name("triangular");
    FAIL() << "triangular was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_NE(std::string(error.what()).find("triangular"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("constant_with_warmup"), std::string::npos);
  }
}

TEST(ScheduleArguments, WhatIsWrongIsNamed) {
  struct Row {
    std::string name, kwargs, words;
  };
  const Row rows[] = {
      {"cosine", R"({"num_cycle": 2})", "num_cycle is not an argument of cosine. Did you mean num_cycles?"},
      {"cosine", R"({"num_cycles": 0})", "num_cycles = 0: must be above 0"},
      {"cosine", R"({"num_cycles": [1]})", "num_cycles = [1]: must be a finite number"},
      {"cosine", "2", "must be a JSON object"},
      {"cosine", "{", "must be a JSON object"},
      {"cosine_with_restarts", R"({"num_cycles": 1.5})", "num_cycles = 1.5: must be a whole number"},
      {"linear", R"({"num_cycles": 1})", "linear takes no arguments. Leave it out."},
      {"constant", R"({"power": 1})", "power is not an argument of constant"},
      {"polynomial", R"({"lr_end": 0.001})", "lr_end = 0.001 must be below learning_rate = 0.001"},
      {"cosine_with_min_lr", "", "needs one of min_lr and min_lr_rate. Try"},
      {"cosine_with_min_lr", R"({"min_lr": 1e-5, "min_lr_rate": 0.1})", "not both"},
      {"cosine_with_min_lr", R"({"min_lr_rate": 0.1, "warmup_lr_rate": 0.1})", "warmup_lr_rate is not an argument"},
      {"cosine_warmup_with_min_lr", R"({"min_lr_rate": 1.5})", "min_lr_rate = 1.5: must be at least 0 and at most 1"},
      {"warmup_stable_decay", "", "needs num_decay_steps. Try --lr_scheduler_kwargs '{\"num_decay_steps\": 10}'"},
      {"warmup_stable_decay", R"({"num_decay_steps": 5, "decay_type": "sqrt"})", "must be one of linear, cosine, 1-sqrt"},
  };
  for (const Row& row : rows) {
    try {
      made(row.name, row.kwargs);
      ADD_FAILURE() << row.name << " " << row.kwargs << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      EXPECT_NE(std::string(error.what()).find(row.words), std::string::npos) << error.what();
    }
  }
}

TEST(ScheduleArguments, NumbersMayBeTexts) {
  EXPECT_EQ(made("cosine", R"({"num_cycles": "1.5"})").num_cycles, 1.5);
  EXPECT_EQ(made("inverse_sqrt", R"({"timescale": null})", 5).timescale, 5);
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
