#include "lockstep/data/order.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/randperm.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <set>
#include <thread>

namespace lockstep::data {
namespace {

std::vector<int64_t> epoch_rows(const Order& order, int64_t epoch) {
  std::vector<int64_t> rows;
  for (int64_t u = 1; u <= order.updates_per_epoch(); ++u) {
    const auto samples = order.samples(epoch * order.updates_per_epoch() + u);
    rows.insert(rows.end(), samples.rows.begin(), samples.rows.end());
  }
  return rows;
}

TEST(Order, FollowsHuggingFaceOnGsm8k) {
  const auto golden = nlohmann::json::parse(read_file(LOCKSTEP_TEST_DATA "/golden/sft-smollm2-gsm8k-fp32.json"));
  const auto expected = golden.at("randperm_first_32").get<std::vector<int64_t>>();
  ASSERT_EQ(expected.size(), 32u);
  const Order order({.num_rows = 1319, .global_batch = 8, .seed = 42, .num_epochs = 1});
  std::vector<int64_t> rows;
  for (int64_t update = 1; update <= 4; ++update) {
    const auto samples = order.samples(update);
    EXPECT_EQ(samples.first_ordinal, static_cast<uint64_t>(8 * (update - 1)));
    rows.insert(rows.end(), samples.rows.begin(), samples.rows.end());
  }
  EXPECT_EQ(rows, expected);
}

TEST(Order, EveryEpochHasItsOwnPermutationSeededWithSeedPlusEpoch) {
  const Order order({.num_rows = 101, .global_batch = 10, .seed = 7, .num_epochs = 3});
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(epoch_rows(order, epoch), torch_randperm(101, 7 + static_cast<uint64_t>(epoch))) << "epoch " << epoch;
  }
}

TEST(Order, LastUpdateOfAnEpochIsShortAndNothingIsRepeated) {
  const Order order({.num_rows = 21, .global_batch = 8, .num_epochs = 2});
  EXPECT_EQ(order.updates_per_epoch(), 3);
  EXPECT_EQ(order.total_updates(), 6);
  const auto tail = order.samples(3);
  EXPECT_EQ(tail.rows.size(), 5u);
  EXPECT_EQ(tail.epoch, 0);
  EXPECT_EQ(tail.epoch_progress, 1.0);
  const auto next = order.samples(4);
  EXPECT_EQ(next.epoch, 1);
  EXPECT_EQ(next.first_ordinal, 21u);
  EXPECT_DOUBLE_EQ(next.epoch_progress, 1.0 + 1.0 / 3.0);
  const auto rows = epoch_rows(order, 1);
  EXPECT_EQ(std::set<int64_t>(rows.begin(), rows.end()).size(), 21u);
  EXPECT_EQ(rows.size(), 21u);
}

TEST(Order, DropLastLeavesTheShortUpdateOutAndOrdinalsCountWhatWasConsumed) {
  const Order order({.num_rows = 21, .global_batch = 8, .drop_last = true, .num_epochs = 2});
  EXPECT_EQ(order.updates_per_epoch(), 2);
  EXPECT_EQ(order.total_updates(), 4);
  EXPECT_EQ(order.samples(2).rows.size(), 8u);
  EXPECT_EQ(order.samples(3).first_ordinal, 16u);
}

TEST(Order, SequentialWalksRowsAsTheyAreInEveryEpoch) {
  const Order order({.num_rows = 5, .global_batch = 2, .shuffle = false, .num_epochs = 2});
  const std::vector<int64_t> expected{0, 1, 2, 3, 4};
  EXPECT_EQ(epoch_rows(order, 0), expected);
  EXPECT_EQ(epoch_rows(order, 1), expected);
}

TEST(Order, FractionalEpochsEndAfterTheCeilingOfUpdates) {
  EXPECT_EQ(Order({.num_rows = 100, .global_batch = 10, .num_epochs = 0.25}).total_updates(), 3);
  EXPECT_EQ(Order({.num_rows = 100, .global_batch = 10, .num_epochs = 1.5}).total_updates(), 15);
  EXPECT_EQ(Order({.num_rows = 3, .global_batch = 10, .num_epochs = 0.01}).total_updates(), 1);
}

TEST(Order, MaxStepsOverridesEpochsAndWalksTheDataAgain) {
  const Order order({.num_rows = 10, .global_batch = 4, .num_epochs = 1, .max_steps = 8});
  EXPECT_EQ(order.total_updates(), 8);
  const auto last = order.samples(8);
  EXPECT_EQ(last.epoch, 2);
  EXPECT_EQ(last.first_ordinal, 24u);
  EXPECT_EQ(Order({.num_rows = 10, .global_batch = 4, .num_epochs = 1, .max_steps = 0}).total_updates(), 3);
}

TEST(Order, IsAPureFunctionOfTheUpdateAlsoWhenThreadsShareIt) {
  const Order order({.num_rows = 997, .global_batch = 32, .num_epochs = 3});
  std::vector<std::vector<int64_t>> forward;
  for (int64_t u = 1; u <= order.total_updates(); ++u) forward.push_back(order.samples(u).rows);
  const auto walk_backward = [&] {
    for (int64_t u = order.total_updates(); u >= 1; --u) {
      EXPECT_EQ(order.samples(u).rows, forward[static_cast<size_t>(u - 1)]) << "update " << u;
    }
  };
  std::jthread other(walk_backward);
  walk_backward();
}

void expect_usage_error(const OrderOptions& options, const std::string& value) {
  try {
    const Order order(options);
    ADD_FAILURE() << "accepted: " << order.total_updates() << " updates";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_NE(std::string(error.what()).find(value), std::string::npos) << error.what();
  }
}

TEST(Order, NothingToTrainIsAUsageErrorThatNamesTheValue) {
  expect_usage_error({.num_rows = 0}, "no rows");
  expect_usage_error({.num_rows = 5, .global_batch = 0}, "0 samples");
  expect_usage_error({.num_rows = 5, .global_batch = 8, .drop_last = true}, "5 rows");
  expect_usage_error({.num_rows = 5, .num_epochs = 0}, "--num_train_epochs 0");
  expect_usage_error({.num_rows = 5, .num_epochs = -2.5}, "-2.5");
  expect_usage_error({.num_rows = 5, .num_epochs = std::numeric_limits<double>::quiet_NaN()}, "nan");
}

}  // namespace
}  // namespace lockstep::data
