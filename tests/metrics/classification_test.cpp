#include "lockstep/metrics/classification.h"

#include "metrics/expected.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::metrics {
namespace {

using Json = nlohmann::json;

void expect_scores(const Scores& scores, const Json& expected) {
  EXPECT_NEAR(scores.precision, expected[0].get<double>(), kFewRoundings);
  EXPECT_NEAR(scores.recall, expected[1].get<double>(), kFewRoundings);
  EXPECT_NEAR(scores.f1, expected[2].get<double>(), kFewRoundings);
}

Confusion confusion_of(const std::vector<int64_t>& labels, const std::vector<int64_t>& predictions, int64_t num_labels) {
  Confusion confusion(num_labels);
  for (size_t i = 0; i < labels.size(); ++i) confusion.add(labels[i], predictions[i]);
  return confusion;
}

TEST(Confusion, ScoresAreThoseOfTheDefinitions) {
  for (const Json& expected : expected_cases("single_label")) {
    const Confusion confusion =
        confusion_of(expected["labels"], expected["predictions"], expected["num_labels"].get<int64_t>());
    SCOPED_TRACE(expected["num_labels"].dump() + " labels");
    EXPECT_EQ(accuracy(confusion), expected["accuracy"].get<double>());
    EXPECT_NEAR(matthews_correlation(confusion), expected["matthews"].get<double>(), kFewRoundings);
    expect_scores(scores_of_label(confusion, 1), expected["label_1"]);
    expect_scores(average_scores(confusion, Average::Micro), expected["micro"]);
    expect_scores(average_scores(confusion, Average::Macro), expected["macro"]);
    expect_scores(average_scores(confusion, Average::Weighted), expected["weighted"]);
  }
}

TEST(Confusion, ByHand) {
  // Truth 1 1 1 0 0, predicted 1 1 0 1 0: 2 true positives, 1 false positive, 1 false negative, 1 true negative.
  const Confusion confusion = confusion_of({1, 1, 1, 0, 0}, {1, 1, 0, 1, 0}, 2);
  EXPECT_EQ(accuracy(confusion), 3.0 / 5);
  const Scores scores = scores_of_label(confusion, 1);
  EXPECT_EQ(scores.precision, 2.0 / 3);
  EXPECT_EQ(scores.recall, 2.0 / 3);
  EXPECT_EQ(scores.f1, 4.0 / 6);
  // (2 x 1 - 1 x 1) / sqrt(3 x 3 x 2 x 2)
  EXPECT_DOUBLE_EQ(matthews_correlation(confusion), 1.0 / 6);
}

TEST(Confusion, DegenerateCasesAreScikitLearns) {
  const Confusion nothing_predicted = confusion_of({1, 0, 1}, {0, 0, 0}, 2);
  EXPECT_EQ(scores_of_label(nothing_predicted, 1).precision, 0);
  EXPECT_EQ(scores_of_label(nothing_predicted, 1).recall, 0);
  EXPECT_EQ(scores_of_label(nothing_predicted, 1).f1, 0);
  EXPECT_EQ(matthews_correlation(nothing_predicted), 0) << "a constant prediction";

  const Confusion no_positives = confusion_of({0, 0}, {0, 0}, 2);
  EXPECT_EQ(scores_of_label(no_positives, 1).f1, 0);
  EXPECT_EQ(average_scores(no_positives, Average::Macro).f1, 1) << "label 1 does not occur and is left out";
  EXPECT_EQ(matthews_correlation(no_positives), 0);

  EXPECT_EQ(matthews_correlation(confusion_of({0, 1, 2, 1}, {0, 1, 2, 1}, 3)), 1);
  EXPECT_EQ(matthews_correlation(confusion_of({0, 1}, {1, 0}, 2)), -1);

  const Confusion empty(2);
  EXPECT_TRUE(std::isnan(accuracy(empty)));
  EXPECT_EQ(average_scores(empty, Average::Weighted).f1, 0);
  EXPECT_EQ(matthews_correlation(empty), 0);
}

TEST(Confusion, MatthewsDoesNotOverflow) {
  // 2^31 rows: products of counts reach 2^62, of variances 2^124.
  const int64_t quarter = int64_t{1} << 29;
  const std::vector<int64_t> words = {3 * quarter / 2, quarter / 2, quarter / 2, 3 * quarter / 2};
  EXPECT_DOUBLE_EQ(matthews_correlation(Confusion::from_words(2, words)), 0.5);
}

TEST(Confusion, GroupingDoesNotShow) {
  const Json expected = expected_cases("single_label")[3];
  const std::vector<int64_t> labels = expected["labels"], predictions = expected["predictions"];
  const Confusion whole = confusion_of(labels, predictions, 7);
  std::vector<Confusion> parts(3, Confusion(7));
  for (size_t i = 0; i < labels.size(); ++i) parts[i * i % 3].add(labels[i], predictions[i]);
  parts[1].merge(parts[0]);
  std::vector<int64_t> sum = parts[1].words();
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += parts[2].words()[i];
  EXPECT_EQ(Confusion::from_words(7, sum).words(), whole.words());
}

TEST(MultiLabelCounts, ScoresAreThoseOfTheDefinitions) {
  for (const Json& expected : expected_cases("multi_label")) {
    const auto num_labels = expected["num_labels"].get<int64_t>();
    std::vector<MultiLabelCounts> parts(2, MultiLabelCounts(num_labels));
    for (size_t row = 0; row < expected["labels"].size(); ++row) {
      const std::vector<uint8_t> labels = expected["labels"][row], predictions = expected["predictions"][row];
      parts[row % 2].add(labels, predictions);
    }
    parts[0].merge(parts[1]);
    const MultiLabelCounts counts = MultiLabelCounts::from_words(num_labels, parts[0].words());
    EXPECT_EQ(subset_accuracy(counts), expected["subset_accuracy"].get<double>());
    expect_scores(average_scores(counts, Average::Micro), expected["micro"]);
    expect_scores(average_scores(counts, Average::Macro), expected["macro"]);
    expect_scores(average_scores(counts, Average::Weighted), expected["weighted"]);
  }
  EXPECT_TRUE(std::isnan(subset_accuracy(MultiLabelCounts(3))));
}

TEST(LogLoss, IsThatOfTheDefinition) {
  for (const Json& expected : expected_cases("log_loss")) {
    LogLoss loss;
    for (size_t row = 0; row < expected["labels"].size(); ++row) {
      const std::vector<float> logits = expected["logits"][row];
      loss.add(softmax_at(logits, expected["labels"][row].get<int64_t>()));
    }
    EXPECT_NEAR(loss.value(), expected["log_loss"].get<double>(), 1e-13);
  }
}

TEST(LogLoss, ClipsAsScikitLearnDoes) {
  LogLoss wrong, right;
  wrong.add(0);
  right.add(1);
  EXPECT_DOUBLE_EQ(wrong.value(), 52 * std::log(2.0));
  EXPECT_DOUBLE_EQ(right.value(), 0x1p-52);
  EXPECT_TRUE(std::isnan(LogLoss().value()));
  LogLoss broken;
  broken.add(std::nan(""));
  broken.add(0.5);
  EXPECT_TRUE(std::isnan(broken.value()));
}

TEST(LogLoss, OrderAndGroupingDoNotShow) {
  LogLoss forward, backward, parts[2];
  for (int i = 1; i < 200; ++i) {
    forward.add(1.0 / i);
    backward.add(1.0 / (200 - i));
    parts[i % 2].add(1.0 / i);
  }
  parts[0].merge(parts[1]);
  EXPECT_EQ(forward.words(), backward.words());
  EXPECT_EQ(LogLoss::from_words(parts[0].words()).value(), forward.value());
}

TEST(Argmax, IsNumpys) {
  constexpr float kNot = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(argmax(std::vector<float>{1, 3, 3, 2}), 1) << "the first of equal ones";
  EXPECT_EQ(argmax(std::vector<float>{9, kNot, 10, kNot}), 1) << "the first NaN";
  EXPECT_EQ(argmax(std::vector<float>{-INFINITY, -INFINITY}), 0);
}

TEST(SoftmaxAt, StaysFinite) {
  const std::vector<float> logits = {1000, 0, -1000};
  EXPECT_EQ(softmax_at(logits, 0), 1);
  EXPECT_EQ(softmax_at(logits, 2), 0);
}

}  // namespace
}  // namespace lockstep::metrics
