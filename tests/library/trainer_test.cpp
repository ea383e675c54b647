// A Trainer in this process: the law, losses and metrics of one's own, prediction, continuation.
#include "tiny_parts.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>

namespace lockstep {
namespace {

using library_test::pair_rows;
using library_test::tiny_parts;

std::string weights_of(const fs::path& output) { return read_file(output / "model.safetensors"); }

std::string trained(TrainerParts parts) {
  const fs::path output = *parts.args.output_dir;
  Trainer(std::move(parts)).train();
  return weights_of(output);
}

/// Cross entropy, as a user would write it; `calls` counts rows.
LossFunction cross_entropy(std::atomic<int64_t>& rows) {
  return [&rows](const LossInput& input, std::span<float> losses, std::span<float> gradient) {
    rows += input.num_rows;
    const auto classes = static_cast<size_t>(input.num_labels);
    for (size_t row = 0; row < static_cast<size_t>(input.num_rows); ++row) {
      const auto logits = input.logits.subspan(row * classes, classes);
      double sum = 0;
      for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
      const auto right = static_cast<size_t>(input.labels[row]);
      losses[row] = static_cast<float>(std::log(sum) - logits[right]);
      for (size_t c = 0; c < classes; ++c) {
        gradient[row * classes + c] = static_cast<float>(std::exp(static_cast<double>(logits[c])) / sum - (c == right ? 1 : 0));
      }
    }
  };
}

TEST(Trainer, ThreadsAndAccumulationCannotBeSeen) {
  const TempFolder folder("lockstep-library-test");
  const std::string want = trained(tiny_parts(folder.path() / "two"));
  TrainerParts parts = tiny_parts(folder.path() / "one");
  parts.args.threads_per_process = 1;
  parts.args.per_device_train_batch_size = 2;
  parts.args.gradient_accumulation_steps = 4;
  EXPECT_TRUE(trained(std::move(parts)) == want);
  parts = tiny_parts(folder.path() / "seed");
  parts.args.seed = 43;
  EXPECT_FALSE(trained(std::move(parts)) == want);
}

TEST(Trainer, AnOwnCrossEntropyTrainsAsTheBuiltInOne) {
  const TempFolder folder("lockstep-library-test");
  Trainer plain(tiny_parts(folder.path() / "plain"));
  const double want = plain.train().metrics.at("eval_loss");
  std::atomic<int64_t> rows = 0;
  TrainerParts parts = tiny_parts(folder.path() / "own");
  parts.compute_loss_func = cross_entropy(rows);
  Trainer own(std::move(parts));
  EXPECT_NEAR(own.train().metrics.at("eval_loss"), want, 1e-5 * want);
  EXPECT_EQ(rows, 24 + 10);
  EXPECT_NE(read_file(folder.path() / "own" / "run.json").find("\"loss\": \"own\""), std::string::npos);
}

TEST(Trainer, AnOwnLossObeysTheLaw) {
  const TempFolder folder("lockstep-library-test");
  std::atomic<int64_t> rows = 0;
  std::vector<std::string> results;
  for (const int64_t threads : {1, 3}) {
    TrainerParts parts = tiny_parts(folder.path() / std::to_string(threads));
    parts.compute_loss_func = cross_entropy(rows);
    parts.args.threads_per_process = threads;
    results.push_back(trained(std::move(parts)));
  }
  EXPECT_TRUE(results[0] == results[1]);
}

TEST(Trainer, WhatALossThrowsOrForgetsIsReported) {
  const TempFolder folder("lockstep-library-test");
  TrainerParts parts = tiny_parts(folder.path() / "throws");
  parts.compute_loss_func = [](const LossInput&, std::span<float>, std::span<float>) {
    throw std::runtime_error("no such margin");
  };
  EXPECT_THROW(
      {
        try {
          Trainer(std::move(parts)).train();
        } catch (const std::runtime_error& error) {
          EXPECT_STREQ(error.what(), "no such margin");
          throw;
        }
      },
      std::runtime_error);
  parts = tiny_parts(folder.path() / "forgets");
  parts.compute_loss_func = [](const LossInput&, std::span<float> losses, std::span<float>) {
    std::fill(losses.begin(), losses.end(), 1.0F);
  };
  try {
    Trainer(std::move(parts)).train();
    FAIL() << "the gradient was never written";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::NonFinite) << error.what();
  }
}

TEST(Trainer, EvaluatesAndPredictsWithWhatItTrained) {
  const TempFolder folder("lockstep-library-test");
  TrainerParts parts = tiny_parts(folder.path() / "out");
  parts.compute_metrics = [](const EvalPrediction& rows) {
    double ones = 0;
    for (const float label : rows.label_ids) ones += label;
    return Metrics{{"rows", static_cast<double>(rows.num_rows)}, {"ones", ones}};
  };
  Trainer trainer(std::move(parts));
  const TrainOutput trained = trainer.train();
  EXPECT_EQ(trained.global_step, 3);
  EXPECT_EQ(trained.metrics.at("eval_rows"), 10);
  const Metrics again = trainer.evaluate();
  EXPECT_EQ(again.at("eval_loss"), trained.metrics.at("eval_loss"));
  EXPECT_EQ(again.at("eval_ones"), trained.metrics.at("eval_ones"));

  // Rows without labels, and the saved folder says the same.
  const Dataset unlabelled = pair_rows("validation", 6).remove_columns({"label"});
  const PredictionOutput said = trainer.predict(unlabelled);
  ASSERT_EQ(said.predictions.size(), 12U);
  EXPECT_FALSE(said.metrics.contains("test_loss"));
  Trainer saved({.model = SequenceClassifier::from_pretrained((folder.path() / "out").string())});
  EXPECT_EQ(saved.predict(unlabelled).predictions, said.predictions);
  EXPECT_THROW(trainer.train(), Error);
}

TEST(Trainer, RegressionAndSeveralLabels) {
  const TempFolder folder("lockstep-library-test");
  const auto with_labels = [](const std::function<Value(int64_t)>& label) {
    std::vector<Row> rows;
    for (int64_t i = 0; i < 16; ++i) rows.push_back({{"question", std::to_string(i)}, {"solution", "x"}, {"label", label(i)}});
    return library_test::tokenized(Dataset::from_rows(rows));
  };
  TrainerParts parts = tiny_parts(folder.path() / "regression");
  parts.model = SequenceClassifier::from_pretrained(library_test::kTinyBert, {.num_labels = 1, .ignore_mismatched_sizes = true});
  parts.train_dataset = with_labels([](int64_t i) { return Value(i); });
  parts.eval_dataset = parts.train_dataset.take(4);
  const TrainOutput regression = Trainer(std::move(parts)).train();
  EXPECT_TRUE(regression.metrics.contains("eval_pearson")) << "regression's metrics";

  parts = tiny_parts(folder.path() / "several");
  parts.model = SequenceClassifier::from_pretrained(library_test::kTinyBert, {.num_labels = 3});
  parts.train_dataset = with_labels([](int64_t i) {
    return Value(std::vector<Scalar>{i % 2 == 0, i % 3 == 0, true});
  });
  parts.eval_dataset = parts.train_dataset.take(4);
  Trainer several(std::move(parts));
  several.train();
  EXPECT_NE(read_file(folder.path() / "several" / "config.json").find("multi_label_classification"), std::string::npos);
}

TEST(Trainer, ASchedulesMetricIsTheEvaluations) {
  const TempFolder folder("lockstep-library-test");
  TrainerParts parts = tiny_parts(folder.path() / "out");
  parts.args.num_train_epochs = 3;
  parts.args.eval_strategy = "epoch";
  parts.args.lr_scheduler_type = "reduce_lr_on_plateau";
  // No loss is better than the one before by that much, so each evaluation but the first halves the rate.
  parts.args.lr_scheduler_kwargs = R"({"factor": 0.5, "patience": 0, "threshold": 1000, "threshold_mode": "abs"})";
  Trainer(std::move(parts)).train();
  const std::string metrics = read_file(folder.path() / "out" / "metrics.jsonl");
  EXPECT_NE(metrics.find("\"learning_rate\":0.001,"), std::string::npos) << metrics;
  EXPECT_NE(metrics.find("\"learning_rate\":0.0005,"), std::string::npos) << metrics;
}

TEST(Trainer, NamesOfClassesReachTheConfig) {
  const TempFolder folder("lockstep-library-test");
  TrainerParts parts = tiny_parts(folder.path() / "out");
  parts.model = SequenceClassifier::from_pretrained(
      library_test::kTinyBert, {.num_labels = 2, .id2label = {"wrong", "right"}, .ignore_mismatched_sizes = true});
  Trainer trainer(std::move(parts));
  trainer.train();
  EXPECT_EQ(trainer.predict(pair_rows("validation", 2)).id2label, (std::vector<std::string>{"wrong", "right"}));
  EXPECT_NE(read_file(folder.path() / "out" / "config.json").find("\"wrong\""), std::string::npos);
}

/// As the command does it.
TEST(Trainer, EvaluatedRowsNameTheClassesThatTheModelDoesNot) {
  const TempFolder folder("lockstep-library-test");
  TrainerParts parts = tiny_parts(folder.path() / "out");
  Trainer(std::move(parts)).train();
  const fs::path config = folder.path() / "out" / "config.json";
  nlohmann::json json = nlohmann::json::parse(read_file(config));
  json["id2label"] = {{"0", "LABEL_0"}, {"1", "LABEL_1"}};
  json["label2id"] = {{"LABEL_0", 0}, {"LABEL_1", 1}};
  library_test::write_text(config, json.dump());
  const auto rows = [](const Value& first, const Value& second) {
    return library_test::tokenized(Dataset::from_rows({{{"question", "How many?"}, {"solution", "Two."}, {"label", first}},
                                                       {{"question", "How much?"}, {"solution", "Six."}, {"label", second}}}));
  };
  const auto evaluated = [&](const Dataset& dataset, std::string& notes) {
    Trainer trainer({.model = SequenceClassifier::from_pretrained((folder.path() / "out").string()), .args = {},
                     .eval_dataset = dataset});
    for (const std::string& note : trainer.notes()) notes += note;
    return trainer.evaluate().at("eval_loss");
  };
  std::string numbers_say, names_say;
  const double by_number = evaluated(rows(int64_t{1}, int64_t{0}), numbers_say);
  EXPECT_EQ(evaluated(rows("yes", "no"), names_say), by_number);
  EXPECT_EQ(numbers_say.find("does not name"), std::string::npos) << numbers_say;
  EXPECT_NE(names_say.find("0 = no, 1 = yes"), std::string::npos) << names_say;
}

TEST(Trainer, ContinuesFromACheckpointToTheSameBits) {
  const TempFolder folder("lockstep-library-test");
  const auto parts_into = [&](const std::string& name) {
    TrainerParts parts = tiny_parts(folder.path() / name);
    parts.args.num_train_epochs = 2;
    parts.args.save_strategy = "epoch";
    return parts;
  };
  const std::string want = trained(parts_into("whole"));
  TrainerParts parts = parts_into("continued");
  parts.args.resume_from_checkpoint = (folder.path() / "whole" / "checkpoint-3").string();
  parts.args.threads_per_process = 1;
  EXPECT_TRUE(trained(std::move(parts)) == want);

  // A loss of one's own is another run.
  std::atomic<int64_t> rows = 0;
  parts = parts_into("other loss");
  parts.args.resume_from_checkpoint = (folder.path() / "whole" / "checkpoint-3").string();
  parts.compute_loss_func = cross_entropy(rows);
  try {
    Trainer(std::move(parts)).train();
    FAIL() << "continued with another loss";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("loss"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep
