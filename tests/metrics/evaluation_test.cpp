#include "lockstep/metrics/evaluation.h"

#include "lockstep/base/error.h"
#include "metrics/expected.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace lockstep::metrics {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct LabelledLogits {
  std::vector<float> logits, labels;
};

/// Rows of made-up logits; labels of the kind that `problem` has.
std::vector<LabelledLogits> made_up_rows(Problem problem, size_t num_outputs, size_t count) {
  std::vector<LabelledLogits> rows;
  uint64_t state = 88172645463325252U;  // Marsaglia's xorshift64
  const auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<float>(state % 2001) / 500 - 2;
  };
  for (size_t i = 0; i < count; ++i) {
    LabelledLogits row;
    for (size_t output = 0; output < num_outputs; ++output) row.logits.push_back(next());
    for (size_t output = 0; output < num_outputs; ++output) {
      const float noise = row.logits[output] + next();
      row.labels.push_back(problem == Problem::MultiLabel ? (noise > 0 ? 1.0F : 0.0F) : noise);
    }
    if (problem == Problem::SingleLabel) row.labels = {static_cast<float>(i * i % num_outputs)};
    rows.push_back(row);
  }
  return rows;
}

Evaluation evaluate(Problem problem, size_t num_outputs, const std::vector<LabelledLogits>& rows) {
  Evaluation evaluation(problem, static_cast<int64_t>(num_outputs), true);
  for (const LabelledLogits& row : rows) evaluation.add(row.logits, row.labels);
  return evaluation;
}

/// Every value, to the bit, NaN equal to NaN.
std::vector<std::pair<std::string, uint64_t>> bits(const NamedValues& values) {
  std::vector<std::pair<std::string, uint64_t>> result;
  for (const auto& [name, value] : values) result.emplace_back(name, std::bit_cast<uint64_t>(value));
  return result;
}

TEST(Evaluation, NeverShowsWhichProcessHadWhichRow) {
  for (const Problem problem : {Problem::SingleLabel, Problem::MultiLabel, Problem::Regression}) {
    for (const size_t num_outputs : {size_t{1}, size_t{2}, size_t{5}}) {
      const auto rows = made_up_rows(problem, num_outputs, 211);
      const Evaluation alone = evaluate(problem, num_outputs, rows);
      for (const size_t ranks : {size_t{2}, size_t{3}, size_t{8}}) {
        std::vector<int64_t> words(alone.words().size());
        std::vector<float> gathered;
        for (size_t rank = 0; rank < ranks; ++rank) {
          Evaluation part(problem, static_cast<int64_t>(num_outputs), true);
          for (size_t i = rank; i < rows.size(); i += ranks) part.add(rows[i].logits, rows[i].labels);
          const auto part_words = part.words();
          for (size_t i = 0; i < words.size(); ++i) words[i] += part_words[i];
          gathered.insert(gathered.end(), part.rows().begin(), part.rows().end());
        }
        Evaluation joined(problem, static_cast<int64_t>(num_outputs), true);
        joined.set_words(words);
        joined.set_rows(gathered);
        EXPECT_EQ(joined.num_rows(), 211);
        EXPECT_EQ(bits(joined.values()), bits(alone.values())) << ranks << " ranks, " << num_outputs << " outputs";
      }
    }
  }
}

TEST(Evaluation, OfTwoLabelsByHand) {
  Evaluation evaluation(Problem::SingleLabel, 2, true);
  const auto add = [&](float first, float second, float label) {
    evaluation.add(std::vector<float>{first, second}, std::vector<float>{label});
  };
  add(0, 1, 1);   // right
  add(2, 1, 1);   // missed
  add(1, 4, 0);   // a false alarm
  add(3, 0, 0);   // right
  add(1, 1, 0);   // equal logits: the first label, right
  EXPECT_EQ(evaluation.num_rows(), 5);
  EXPECT_EQ(evaluation.value("accuracy"), 3.0 / 5);
  EXPECT_EQ(evaluation.value("f1"), 1.0 / 2);
  EXPECT_EQ(evaluation.value("precision"), 1.0 / 2);
  EXPECT_EQ(evaluation.value("recall"), 1.0 / 2);
  // Differences 1 -1 | 3 -3 0: of 6 pairs, 1 > -3, 1 > 0 and -1 > -3 are in order.
  EXPECT_EQ(evaluation.value("roc_auc"), 3.0 / 6);
  const double loss = (std::log1p(std::exp(-1.0)) + std::log1p(std::exp(1.0)) + std::log1p(std::exp(3.0)) +
                       std::log1p(std::exp(-3.0)) + std::log(2.0)) / 5;
  EXPECT_NEAR(evaluation.value("log_loss"), loss, 1e-15);
}

TEST(Evaluation, LogLossIsThatOfTheDefinition) {
  for (const nlohmann::json& expected : expected_cases("log_loss")) {
    Evaluation evaluation(Problem::SingleLabel, expected["num_labels"].get<int64_t>(), false);
    for (size_t row = 0; row < expected["labels"].size(); ++row) {
      evaluation.add(expected["logits"][row].get<std::vector<float>>(),
                     std::vector<float>{expected["labels"][row].get<float>()});
    }
    EXPECT_NEAR(evaluation.value("log_loss"), expected["log_loss"].get<double>(), 1e-13);
  }
}

TEST(Evaluation, OfSeveralLabelsAndOfTargets) {
  Evaluation labels(Problem::MultiLabel, 3, false);
  labels.add(std::vector<float>{1, -1, 0}, std::vector<float>{1, 0, 0});    // right: 0 is not above 1/2
  labels.add(std::vector<float>{1, 1, -1}, std::vector<float>{1, 0, 1});    // one false alarm, one missed
  EXPECT_EQ(labels.value("accuracy"), 0.5);
  EXPECT_EQ(labels.value("precision"), 2.0 / 3);
  EXPECT_EQ(labels.value("recall"), 2.0 / 3);
  EXPECT_DOUBLE_EQ(labels.value("f1_macro"), 1.0 / 3) << "label 0 has 1, the others 0";

  Evaluation targets(Problem::Regression, 1, true);
  targets.add(std::vector<float>{1}, std::vector<float>{1.5F});
  targets.add(std::vector<float>{2}, std::vector<float>{2.5F});
  targets.add(std::vector<float>{4}, std::vector<float>{4.5F});
  EXPECT_EQ(targets.value("mse"), 0.25);
  EXPECT_EQ(targets.value("pearson"), 1);
  EXPECT_EQ(targets.value("spearmanr"), 1);
}

TEST(Evaluation, KeepsNothingPerRowUnlessAsked) {
  Evaluation evaluation(Problem::Regression, 1, false);
  evaluation.add(std::vector<float>{1}, std::vector<float>{2});
  evaluation.add(std::vector<float>{2}, std::vector<float>{5});
  EXPECT_TRUE(evaluation.rows().empty());
  EXPECT_THAT(evaluation.values(), ElementsAre(testing::Pair("mse", 5), testing::Pair("pearson", 1)));
}

template <class Call>
std::string error_of(Call call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(name(error.kind())) + ": " + error.what();
  }
  return "no error";
}

TEST(Evaluation, SaysWhatIsWrong) {
  Evaluation classes(Problem::SingleLabel, 3, false), labels(Problem::MultiLabel, 1, false);
  const std::vector<float> logits = {0, 0, 0}, logit = {0};
  for (const float label : {3.0F, -1.0F, 0.5F, NAN}) {
    const std::string text = error_of([&] { classes.add(logits, std::vector<float>{label}); });
    EXPECT_THAT(text, testing::AllOf(HasSubstr(std::string(name(ErrorKind::Data))), HasSubstr("classes 0 to 2"))) << label;
  }
  EXPECT_THAT(error_of([&] { classes.add(logits, std::vector<float>{0.5F}); }), HasSubstr("0.5"));
  EXPECT_THAT(error_of([&] { labels.add(logit, std::vector<float>{0.5F}); }), HasSubstr("must be 0 or 1"));
  EXPECT_THAT(error_of([&] { classes.value("acuracy"); }),
              testing::AllOf(HasSubstr("acuracy"), HasSubstr("accuracy, f1, precision")));
  EXPECT_THAT(error_of([&] { glue_metrics("mrcp"); }), HasSubstr("mrcp"));
}

TEST(Evaluation, HasEveryMetricItNames) {
  for (const Problem problem : {Problem::SingleLabel, Problem::MultiLabel, Problem::Regression}) {
    for (const size_t num_outputs : {size_t{2}, size_t{4}}) {
      const Evaluation evaluation = evaluate(problem, num_outputs, made_up_rows(problem, num_outputs, 50));
      const auto names = available(problem, static_cast<int64_t>(num_outputs));
      const NamedValues values = evaluation.values();
      ASSERT_EQ(values.size(), names.size());
      for (size_t i = 0; i < names.size(); ++i) {
        EXPECT_EQ(values[i].first, names[i]);
        EXPECT_TRUE(std::isfinite(values[i].second)) << names[i];
      }
    }
  }
}

TEST(GlueMetrics, AreThoseOfEvaluate) {
  EXPECT_THAT(glue_metrics("mrpc"), ElementsAre("accuracy", "f1"));
  EXPECT_THAT(glue_metrics("qqp"), ElementsAre("accuracy", "f1"));
  EXPECT_THAT(glue_metrics("cola"), ElementsAre("matthews_correlation"));
  EXPECT_THAT(glue_metrics("stsb"), ElementsAre("pearson", "spearmanr"));
  for (const char* task : {"sst2", "mnli", "mnli_matched", "mnli_mismatched", "qnli", "rte", "wnli"}) {
    EXPECT_THAT(glue_metrics(task), ElementsAre("accuracy")) << task;
  }
}

}  // namespace
}  // namespace lockstep::metrics
