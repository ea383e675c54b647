// `lockstep classify` as a user starts it: the law over layouts, restarts and kills, and what it leaves behind.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <thread>

namespace lockstep::cli {
namespace {

using ClassifyJson = nlohmann::json;

/// Three epochs of 50 rows in updates of 12 (5 per epoch, the last of each short), dropout on, evaluated and saved each epoch.
std::vector<std::string> classify_args(const Scratch& scratch, const std::string& output,
                                       const std::vector<std::string>& more) {
  std::vector<std::string> args = {"classify", "--model_name_or_path", (kTinyModels / "bert").string(),
                                   "--dataset_name", (kTestData / "solution-pairs").string(),
                                   "--text_column", "question", "--text_pair_column", "solution", "--max_length", "48",
                                   "--ignore_mismatched_sizes", "--max_train_samples", "50", "--max_eval_samples", "23",
                                   "--learning_rate", "1e-3", "--eval_strategy", "epoch", "--save_strategy", "epoch",
                                   "--save_optimizer_state", "--disable_tqdm", "--output_dir", (scratch / output).string()};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

const std::vector<std::string> kSimplest = {"--nproc_per_node", "1", "--threads_per_process", "1",
                                            "--per_device_train_batch_size", "12"};

/// Weights, moments and every number of the evaluations but the times.
std::string result_of(const fs::path& output) {
  std::string text = read_file(output / "model.safetensors") + read_file(output / "optimizer_state.safetensors");
  for (const std::string& line : lines_of(output / "metrics.jsonl")) {
    const ClassifyJson json = ClassifyJson::parse(line);
    for (const auto& [name, value] : json.items()) {
      if (name.starts_with("eval_") && !name.ends_with("runtime") && !name.ends_with("second")) {
        text += name + value.dump() + "\n";
      }
    }
  }
  return text;
}

std::string run_to_the_end(const Scratch& scratch, const std::string& output, const std::vector<std::string>& more) {
  const Ended ended = run(scratch, classify_args(scratch, output, more));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return result_of(scratch / output);
}

TEST(Classify, TheLayoutCannotBeSeen) {
  const Scratch scratch;
  const std::string want = run_to_the_end(scratch, "simplest", kSimplest);
  const std::vector<std::vector<std::string>> layouts = {
      {"--nproc_per_node", "1", "--threads_per_process", "2", "--per_device_train_batch_size", "4",
       "--gradient_accumulation_steps", "3"},
      {"--nproc_per_node", "3", "--per_device_train_batch_size", "4"},
      {"--nproc_per_node", "2", "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "3",
       "--gradient_checkpointing", "true"}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    EXPECT_TRUE(run_to_the_end(scratch, "layout" + std::to_string(i), layouts[i]) == want) << "layout " << i;
  }
  EXPECT_FALSE(run_to_the_end(scratch, "seed", {"--seed", "43", "--per_device_train_batch_size", "12"}) == want);
  EXPECT_EQ(scratch.leftovers(), "");
}

TEST(Classify, AKilledRunGoesOnInAnotherLayout) {
  const Scratch scratch;
  const std::string want = run_to_the_end(scratch, "simplest", kSimplest);
  const std::vector<std::string> saving = {"--save_strategy", "steps", "--save_steps", "1"};
  std::vector<std::string> first = kSimplest;
  first.insert(first.end(), saving.begin(), saving.end());
  {
    Command command(scratch, classify_args(scratch, "out", first));
    ASSERT_TRUE(command.wait_for_first_update(scratch / "out"));
    const Deadline deadline = Deadline::in(std::chrono::seconds(20));
    while (!fs::exists(scratch / "out" / "checkpoint-2" / "manifest.json") && !deadline.passed()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (const pid_t worker : command.workers()) kill(worker, SIGKILL);
    const Ended ended = command.wait();
    if (ended.exit_code != 0) {
      EXPECT_EQ(ended.exit_code, 137) << ended.err;
    }
  }
  std::vector<std::string> second = {"--nproc_per_node", "2", "--per_device_train_batch_size", "6",
                                     "--resume_from_checkpoint", "last"};
  second.insert(second.end(), saving.begin(), saving.end());
  EXPECT_TRUE(run_to_the_end(scratch, "out", second) == want);
  EXPECT_EQ(scratch.leftovers(), "");
}

TEST(Classify, StopsOnRequestWithACheckpoint) {
  const Scratch scratch;
  std::vector<std::string> args = kSimplest;
  args.insert(args.end(), {"--num_train_epochs", "2000"});
  Command command(scratch, classify_args(scratch, "out", args));
  ASSERT_TRUE(command.wait_for_first_update(scratch / "out"));
  command.signal(SIGTERM);
  expect_stopped_with_a_checkpoint(command.wait(), scratch / "out");
}

TEST(Classify, EvaluatesAModelThatDoesNotNameItsClasses) {
  const Scratch scratch;
  std::vector<std::string> args = kSimplest;
  args.insert(args.end(), {"--num_train_epochs", "1"});
  run_to_the_end(scratch, "out", args);
  // As transformers leaves it where nobody named them; the rows say right and wrong.
  change_json(scratch / "out" / "config.json", [](Json& config) {
    config["id2label"] = {{"0", "LABEL_0"}, {"1", "LABEL_1"}};
    config["label2id"] = {{"LABEL_0", 0}, {"LABEL_1", 1}};
  });
  args.insert(args.end(), {"--model_name_or_path", (scratch / "out").string(), "--do_eval", "--eval_strategy", "no",
                           "--save_strategy", "no"});
  const Ended ended = run(scratch, classify_args(scratch, "judged", args));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("0 = right, 1 = wrong"), std::string::npos) << ended.err;
  const auto loss = [&](const char* output) {
    return ClassifyJson::parse(read_file(scratch / output / "eval_results.json"))["eval_loss"];
  };
  EXPECT_EQ(loss("judged"), loss("out"));
}

/// One evaluation or prediction more, into a folder that has some: the trained model's own are kept.
TEST(Classify, ResultsOfUseDoNotDestroyEarlierOnes) {
  const Scratch scratch;
  std::vector<std::string> args = kSimplest;
  args.insert(args.end(), {"--num_train_epochs", "1"});
  run_to_the_end(scratch, "out", args);
  const std::string own = read_file(scratch / "out/eval_results.json");
  const fs::path rows = kTestData / "solution-pairs/validation.jsonl";
  const auto use = [&](const std::string& output, const std::vector<std::string>& more) {
    std::vector<std::string> words = {"classify", "--model_name_or_path", (scratch / "out/checkpoint-5").string(), "--text_column",
                                      "question", "--text_pair_column", "solution", "--max_length", "48", "--max_eval_samples", "7",
                                      "--max_predict_samples", "7", "--output_dir", (scratch / output).string()};
    words.insert(words.end(), more.begin(), more.end());
    return run(scratch, words);
  };
  for (int i = 0; i < 2; ++i) {
    const Ended ended = use("out", {"--validation_file", rows.string()});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_TRUE(read_file(scratch / "out/eval_results.previous.json") == own) << "evaluation " << i;
    EXPECT_FALSE(read_file(scratch / "out/eval_results.json") == own);
    EXPECT_EQ(ended.err.find("kept as eval_results.previous.json") == std::string::npos, i == 1) << ended.err;
  }
  for (int i = 0; i < 2; ++i) EXPECT_EQ(use("said", {"--test_file", rows.string()}).exit_code, 0) << "prediction " << i;
  scratch.write("said/predictions.jsonl", "mine\n");
  const Ended refused = use("said", {"--test_file", rows.string()});
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
  EXPECT_NE(refused.err.find("predictions.jsonl, which is there already and holds no predictions"), std::string::npos) << refused.err;
  EXPECT_EQ(read_file(scratch / "said/predictions.jsonl"), "mine\n");
}

TEST(Classify, TheConsoleSaysEachNumberOnce) {
  const Scratch scratch;
  std::vector<std::string> args = kSimplest;
  args.insert(args.end(), {"--num_train_epochs", "1"});
  const Ended ended = run(scratch, classify_args(scratch, "out", args));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const ClassifyJson all = ClassifyJson::parse(read_file(scratch / "out/eval_results.json"));
  for (const char* name : {"eval_loss", "eval_accuracy", "eval_f1"}) {
    EXPECT_NE(ended.err.find(name), std::string::npos) << name;
    EXPECT_NE(ended.out.find(name), std::string::npos) << name;
  }
  for (const char* name : {"eval_log_loss", "eval_f1_micro", "eval_f1_macro", "eval_precision", "eval_runtime"}) {
    EXPECT_TRUE(all.contains(name)) << name;
    EXPECT_EQ((ended.err + ended.out).find(name), std::string::npos) << name;
  }
  args.insert(args.end(), {"--metric_name", "accuracy", "f1_micro"});
  const Ended asked = run(scratch, classify_args(scratch, "asked", args));
  EXPECT_NE(asked.err.find("eval_f1_micro"), std::string::npos) << asked.err;
}

TEST(Classify, RefusesToContinueAnotherRun) {
  const Scratch scratch;
  run_to_the_end(scratch, "out", kSimplest);
  const Ended ended = run(scratch, classify_args(scratch, "out", {"--per_device_train_batch_size", "12", "--seed", "7",
                                                                  "--max_length", "40", "--resume_from_checkpoint", "last"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("--seed: 42 -> 7"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("hash of the rows"), std::string::npos) << ended.err;
}

TEST(Classify, ARateThatFollowsTheLossFallsAtEvaluations) {
  const Scratch scratch;
  std::vector<std::string> args = kSimplest;
  // No evaluation is better by so much: each after the first halves the rate.
  args.insert(args.end(), {"--lr_scheduler_type", "reduce_lr_on_plateau", "--lr_scheduler_kwargs",
                           R"({"patience": 0, "factor": 0.5, "threshold": 0.99})"});
  run_to_the_end(scratch, "out", args);
  std::vector<double> rates;
  for (const std::string& line : lines_of(scratch / "out" / "metrics.jsonl")) {
    const ClassifyJson json = ClassifyJson::parse(line);
    if (json.contains("learning_rate")) rates.push_back(json["learning_rate"]);
  }
  ASSERT_EQ(rates.size(), 15U);
  EXPECT_EQ(rates[9], 1e-3);
  EXPECT_EQ(rates[10], 5e-4);
}

TEST(Classify, KeepsTheBestAndTheNewest) {
  const Scratch scratch;
  std::vector<std::string> args = kSimplest;
  args.insert(args.end(), {"--save_total_limit", "1", "--load_best_model_at_end", "--metric_for_best_model", "eval_loss",
                           "--num_train_epochs", "6", "--logging_steps", "7", "--logging_dir",
                           (scratch / "logs").string()});
  const Ended ended = run(scratch, classify_args(scratch, "out", args));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const ClassifyJson state = ClassifyJson::parse(read_file(scratch / "out" / "trainer_state.json"));
  double best = 1e9;
  int64_t best_step = 0;
  for (const auto& entry : state["log_history"]) {
    if (entry.contains("eval_loss") && entry["eval_loss"] < best && entry["step"] != best_step) {
      best = entry["eval_loss"];
      best_step = entry["step"];
    }
  }
  EXPECT_EQ(state["best_global_step"], best_step);
  EXPECT_EQ(state["best_metric"], best);
  for (const auto& entry : fs::directory_iterator(scratch / "out")) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("checkpoint-")) continue;
    EXPECT_TRUE(name == "checkpoint-30" || name == "checkpoint-" + std::to_string(best_step)) << name;
  }
  EXPECT_EQ(read_file(scratch / "out" / "model.safetensors"),
            read_file(scratch / "out" / ("checkpoint-" + std::to_string(best_step)) / "model.safetensors"));
  EXPECT_FALSE(fs::is_empty(scratch / "logs")) << "a folder for TensorBoard's files is a wish for them";
  EXPECT_EQ(state["num_train_epochs"], 6);
  EXPECT_EQ(state["max_steps"], 30);
  EXPECT_EQ(state["logging_steps"], 7);
}

TEST(Classify, PredictsWithWhatItTrained) {
  const Scratch scratch;
  run_to_the_end(scratch, "out", kSimplest);
  const Ended ended = run(scratch, {"classify", "--model_name_or_path", (scratch / "out").string(), "--test_file",
                                    (kTestData / "solution-pairs" / "validation.jsonl").string(), "--text_column", "question",
                                    "--text_pair_column", "solution", "--max_length", "48", "--do_predict",
                                    "--max_predict_samples", "23", "--output_dir", (scratch / "said").string()});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const auto lines = lines_of(scratch / "said" / "predictions.jsonl");
  ASSERT_EQ(lines.size(), 23U);
  EXPECT_NE((ended.out + ended.err).find("Predicted with " + (scratch / "out").string()), std::string::npos) << ended.out;
  int64_t right = 0, row = 0;
  const auto rows = lines_of(kTestData / "solution-pairs" / "validation.jsonl");
  for (const std::string& line : lines) {
    const ClassifyJson json = ClassifyJson::parse(line);
    EXPECT_EQ(json["row"], row);
    EXPECT_NEAR(json["scores"][0].get<double>() + json["scores"][1].get<double>(), 1, 1e-6);
    right += json["label"] == ClassifyJson::parse(rows.at(static_cast<size_t>(row)))["label"] ? 1 : 0;
    ++row;
  }
  const ClassifyJson trained = ClassifyJson::parse(read_file(scratch / "out" / "eval_results.json"));
  EXPECT_NEAR(trained["eval_accuracy"].get<double>(), static_cast<double>(right) / 23, 1e-12);
}

}  // namespace
}  // namespace lockstep::cli
