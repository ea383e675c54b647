#include "lockstep/metrics/regression.h"

#include "metrics/expected.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::metrics {
namespace {

using Json = nlohmann::json;
constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();

PairSums sums_of(const std::vector<float>& predictions, const std::vector<float>& targets) {
  PairSums sums;
  for (size_t i = 0; i < predictions.size(); ++i) sums.add(predictions[i], targets[i]);
  return sums;
}

void expect_value(double value, const Json& expected) {
  if (expected.is_null()) {
    EXPECT_TRUE(std::isnan(value)) << value;
  } else {
    EXPECT_NEAR(value, expected.get<double>(), kFewRoundings);
  }
}

TEST(PairSums, AndSpearmanAreThoseOfTheDefinitions) {
  for (const Json& expected : expected_cases("regression")) {
    const std::vector<float> predictions = expected["predictions"], targets = expected["targets"];
    SCOPED_TRACE(expected["predictions"][0].dump() + " ...");
    const PairSums sums = sums_of(predictions, targets);
    // One rounding of the sum, one of the division.
    EXPECT_NEAR(sums.mean_squared_error(), expected["mse"].get<double>(), 0x1p-51 * expected["mse"].get<double>());
    expect_value(sums.pearson(), expected["pearson"]);
    expect_value(spearman(predictions, targets), expected["spearman"]);
  }
}

TEST(PairSums, OrderAndGroupingDoNotShow) {
  const Json expected = expected_cases("regression")[2];
  const std::vector<float> predictions = expected["predictions"], targets = expected["targets"];
  const PairSums whole = sums_of(predictions, targets);
  PairSums parts[3];
  for (size_t i = predictions.size(); i-- > 0;) parts[i * i % 3].add(predictions[i], targets[i]);
  parts[2].merge(parts[0]);
  std::vector<int64_t> sum = parts[1].words();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts[2].words()[i];
  const PairSums joined = PairSums::from_words(sum);
  EXPECT_EQ(joined.words(), whole.words());
  EXPECT_EQ(joined.pearson(), whole.pearson());
  EXPECT_EQ(joined.mean_squared_error(), whole.mean_squared_error());
}

TEST(PairSums, DegenerateCasesAreScipys) {
  EXPECT_TRUE(std::isnan(PairSums().mean_squared_error()));
  EXPECT_TRUE(std::isnan(sums_of({1}, {2}).pearson())) << "fewer than two";
  EXPECT_TRUE(std::isnan(sums_of({0.1F, 0.1F, 0.1F}, {1, 2, 3}).pearson())) << "constant";
  EXPECT_TRUE(std::isnan(sums_of({1, kNoNumber, 3}, {1, 2, 3}).pearson()));
  EXPECT_TRUE(std::isnan(sums_of({1, INFINITY, 3}, {1, 2, 3}).pearson()));
  EXPECT_TRUE(std::isnan(sums_of({1, kNoNumber}, {1, 2}).mean_squared_error()));
  EXPECT_EQ(sums_of({1, 2, 4}, {-3, -6, -12}).pearson(), -1);
  EXPECT_EQ(sums_of({0.1F, 0.7F, 1e-9F}, {0.1F, 0.7F, 1e-9F}).mean_squared_error(), 0);
}

TEST(DoubledRanks, ShareTies) {
  const std::vector<float> values = {3, 1, 3, 2, 3};
  // 1 has rank 1, 2 rank 2, the threes share 3, 4, 5.
  EXPECT_THAT(doubled_ranks(values), testing::ElementsAre(8, 2, 8, 4, 8));
  EXPECT_THAT(doubled_ranks(std::vector<float>{0.0F, -0.0F}), testing::ElementsAre(3, 3));
}

TEST(Spearman, DegenerateCasesAreScipys) {
  const std::vector<float> rising = {1, 2, 30}, constant = {4, 4, 4}, broken = {1, kNoNumber, 2};
  EXPECT_EQ(spearman(rising, rising), 1);
  EXPECT_TRUE(std::isnan(spearman(rising, constant)));
  EXPECT_TRUE(std::isnan(spearman(broken, rising)));
  EXPECT_TRUE(std::isnan(spearman(std::vector<float>{1}, std::vector<float>{1})));
}

TEST(RocAuc, IsTheShareOfPairsInTheRightOrder) {
  for (const Json& expected : expected_cases("ranking")) {
    const std::vector<float> scores = expected["scores"], labels = expected["labels"];
    EXPECT_EQ(roc_auc(scores, labels), expected["roc_auc"].get<double>());
  }
}

TEST(RocAuc, DegenerateCases) {
  const std::vector<float> scores = {0.1F, 0.2F, 0.3F}, all = {1, 1, 1}, none = {0, 0, 0}, mixed = {0, 1, 0};
  EXPECT_TRUE(std::isnan(roc_auc(scores, all)));
  EXPECT_TRUE(std::isnan(roc_auc(scores, none)));
  EXPECT_TRUE(std::isnan(roc_auc(std::vector<float>{0, kNoNumber, 1}, mixed)));
  EXPECT_EQ(roc_auc(std::vector<float>{5, 5, 5}, mixed), 0.5) << "all equal";
  EXPECT_EQ(roc_auc(std::vector<float>{-INFINITY, INFINITY, 0}, mixed), 1);
}

}  // namespace
}  // namespace lockstep::metrics
