// `lockstep sft` with what happens between updates: evaluations, checkpoints, restarts.
#include "command.h"
#include "model_files.h"

#include "lockstep/base/hash.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <map>
#include <span>
#include <thread>

namespace lockstep::cli {
namespace {

using SftJson = nlohmann::json;

/// A folder with 70 rows to train on and 26 to evaluate on.
std::string split_chats(const Scratch& scratch) {
  std::map<std::string, std::string> files;
  int row = 0;
  for (const std::string& line : lines_of(kChats)) files[row++ < 70 ? "train.jsonl" : "test.jsonl"] += line + "\n";
  fs::create_directories(scratch / "chats");
  for (const auto& [name, text] : files) scratch.write("chats/" + name, text);
  return (scratch / "chats").string();
}

/// Two epochs of 70 rows in updates of 12 (6 an epoch, the last of each short), evaluated and saved every fourth.
std::vector<std::string> between_args(const Scratch& scratch, const std::string& output,
                                      const std::vector<std::string>& more) {
  std::vector<std::string> args =
      sft_args(scratch, {"--dataset_name", split_chats(scratch), "--max_steps", "-1", "--num_train_epochs", "2",
                         "--learning_rate", "1e-3", "--eval_strategy", "steps", "--eval_steps", "4", "--save_steps", "4",
                         "--save_optimizer_state", "--disable_tqdm", "--output_dir", (scratch / output).string()});
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

const std::vector<std::string> kOneProcess = {"--nproc_per_node", "1", "--threads_per_process", "1",
                                              "--per_device_train_batch_size", "12"};

/// Weights, moments and every number of the evaluations but the times, each update's once.
std::string bits_of(const fs::path& output) {
  std::string text = read_file(output / "model.safetensors") + read_file(output / "optimizer_state.safetensors");
  std::map<std::string, std::string> evaluations;
  for (const std::string& line : lines_of(output / "metrics.jsonl")) {
    const SftJson json = SftJson::parse(line);
    for (const auto& [name, value] : json.items()) {
      if (name.starts_with("eval_") && !name.ends_with("runtime") && !name.ends_with("second")) {
        evaluations[json["step"].dump() + name] = value.dump();
      }
    }
  }
  for (const auto& [name, value] : evaluations) text += name + value + "\n";
  return text;
}

std::string bits_of_run(const Scratch& scratch, const std::string& output, const std::vector<std::string>& more) {
  const Ended ended = run(scratch, between_args(scratch, output, more));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return bits_of(scratch / output);
}

TEST(SftRun, EvaluatesTheTestSplitInEveryLayoutAlike) {
  const Scratch scratch;
  const std::string want = bits_of_run(scratch, "simplest", kOneProcess);
  const SftJson results = SftJson::parse(read_file(scratch / "simplest" / "eval_results.json"));
  for (const char* name : {"eval_loss", "eval_entropy", "eval_mean_token_accuracy", "eval_num_tokens", "eval_runtime"}) {
    EXPECT_TRUE(results.contains(name)) << name;
  }
  EXPECT_NE(want.find("4eval_loss"), std::string::npos);
  EXPECT_NE(want.find("12eval_loss"), std::string::npos);
  const std::vector<std::vector<std::string>> layouts = {
      {"--nproc_per_node", "3", "--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2"},
      {"--nproc_per_node", "2", "--per_device_train_batch_size", "6", "--per_device_eval_batch_size", "3"}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    EXPECT_TRUE(bits_of_run(scratch, "layout" + std::to_string(i), layouts[i]) == want) << "layout " << i;
  }
  // What is evaluated and saved does not change what is trained.
  const std::string plain = bits_of_run(scratch, "plain", {"--per_device_train_batch_size", "12", "--eval_strategy", "no",
                                                           "--save_strategy", "no"});
  EXPECT_TRUE(want.starts_with(plain));
  EXPECT_EQ(scratch.leftovers(), "");
}

/// The numbers of an evaluation by themselves: a run that evaluates before its first update, and one of the saved model.
TEST(SftRun, EvaluatesWhatItSaves) {
  const Scratch scratch;
  bits_of_run(scratch, "out", kOneProcess);
  const SftJson end = SftJson::parse(read_file(scratch / "out" / "eval_results.json"));
  std::vector<std::string> again = kOneProcess;
  again.insert(again.end(), {"--model_name_or_path", (scratch / "out").string(), "--eval_on_start", "--num_train_epochs",
                             "0.01", "--learning_rate", "0"});
  bits_of_run(scratch, "again", again);
  const SftJson start = SftJson::parse(read_file(scratch / "again" / "eval_results.json"));
  for (const char* name : {"eval_loss", "eval_entropy", "eval_mean_token_accuracy"}) EXPECT_EQ(start[name], end[name]) << name;
}

TEST(SftRun, AKilledRunGoesOnInAnotherLayout) {
  const Scratch scratch;
  const std::string want = bits_of_run(scratch, "simplest", kOneProcess);
  std::vector<std::string> first = kOneProcess;
  first.insert(first.end(), {"--save_steps", "1", "--eval_steps", "4"});
  {
    Command command(scratch, between_args(scratch, "out", first));
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
  EXPECT_TRUE(bits_of_run(scratch, "out", {"--nproc_per_node", "2", "--per_device_train_batch_size", "6",
                                           "--resume_from_checkpoint", "last"}) == want);
  EXPECT_EQ(scratch.leftovers(), "");
}

TEST(SftRun, ARateThatFollowsTheLossIsKeptInCheckpoints) {
  const Scratch scratch;
  std::vector<std::string> args = kOneProcess;
  // No evaluation is better by so much: each after the first halves the rate.
  args.insert(args.end(), {"--lr_scheduler_type", "reduce_lr_on_plateau", "--lr_scheduler_kwargs",
                           R"({"patience": 0, "factor": 0.5, "threshold": 0.99})"});
  const std::string want = bits_of_run(scratch, "out", args);
  std::vector<double> rates;
  for (const std::string& line : lines_of(scratch / "out" / "metrics.jsonl")) {
    const SftJson json = SftJson::parse(line);
    if (json.contains("learning_rate")) rates.push_back(json["learning_rate"]);
  }
  ASSERT_EQ(rates.size(), 12U);
  EXPECT_EQ(rates[7], 1e-3);
  EXPECT_EQ(rates[8], 5e-4);
  EXPECT_EQ(rates[11], 5e-4);
  args.insert(args.end(), {"--nproc_per_node", "2", "--per_device_train_batch_size", "6", "--resume_from_checkpoint",
                           (scratch / "out" / "checkpoint-4").string()});
  EXPECT_TRUE(bits_of_run(scratch, "out", args) == want);
}

TEST(SftRun, DoesNotGoOnFromAnEarlierRunInTheSameFolder) {
  const Scratch scratch;
  bits_of_run(scratch, "out", kOneProcess);
  std::vector<std::string> other = kOneProcess;
  other.insert(other.end(), {"--learning_rate", "2e-3"});
  std::vector<std::string> unsaved = other;
  unsaved.insert(unsaved.end(), {"--save_strategy", "no"});
  bits_of_run(scratch, "out", unsaved);
  other.insert(other.end(), {"--resume_from_checkpoint", "last"});
  const Ended ended = run(scratch, between_args(scratch, "out", other));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_NE(ended.err.find("no complete checkpoint to go on from"), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("They are of an earlier run in this folder"), std::string::npos) << ended.err;
}

TEST(SftRun, AContinuedRunKnowsWhatItBeganWith) {
  const Scratch scratch;
  const std::string want = bits_of_run(scratch, "out", kOneProcess);
  // As a run on another processor, from other weights, would have written it.
  const fs::path record = scratch / "out" / "checkpoint-4" / "run.json";
  SftJson json = SftJson::parse(read_file(record));
  const std::string kernel = json["kernels"]["adamw"], block = json["weights"][0];
  std::string text = read_file(record);
  for (const std::string& hash : {kernel, block}) {
    ASSERT_EQ(hash.size(), 16U);
    text.replace(text.find(hash), hash.size(), "0123456789abcdef");
  }
  write_file_atomically(record, text);
  change_json(record.parent_path() / "manifest.json", [&](Json& manifest) {
    for (Json& file : manifest["files"]) {
      if (file["name"] == "run.json") file["hash"] = to_hex(hash_bytes(std::as_bytes(std::span(text))));
    }
  });
  std::vector<std::string> again = kOneProcess;
  again.insert(again.end(), {"--resume_from_checkpoint", record.parent_path().string()});
  const Ended ended = run(scratch, between_args(scratch, "out", again));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("changed kernels: other bits here from adamw ("), std::string::npos) << ended.err;
  json = SftJson::parse(read_file(scratch / "out" / "run.json"));
  EXPECT_EQ(json["weights"][0], "0123456789abcdef");
  EXPECT_EQ(json["kernels"]["adamw"], kernel) << "those of now";
  EXPECT_TRUE(bits_of(scratch / "out") == want);
}

TEST(SftRun, LeavesTheResultsOfARunThatIsDone) {
  const Scratch scratch;
  const std::string want = bits_of_run(scratch, "out", kOneProcess);
  const std::string results = read_file(scratch / "out" / "train_results.json");
  std::vector<std::string> again = kOneProcess;
  again.insert(again.end(), {"--resume_from_checkpoint", "last"});
  const Ended ended = run(scratch, between_args(scratch, "out", again));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.out.find("Nothing was left to train: update 12 was the last one"), std::string::npos) << ended.out;
  EXPECT_EQ(read_file(scratch / "out" / "train_results.json"), results);
  EXPECT_TRUE(bits_of(scratch / "out") == want);
}

TEST(SftRun, StopsOnRequestWithACheckpoint) {
  const Scratch scratch;
  std::vector<std::string> args = kOneProcess;
  args.insert(args.end(), {"--num_train_epochs", "2000", "--eval_strategy", "no", "--save_steps", "100000"});
  Command command(scratch, between_args(scratch, "out", args));
  ASSERT_TRUE(command.wait_for_first_update(scratch / "out"));
  command.signal(SIGTERM);
  expect_stopped_with_a_checkpoint(command.wait(), scratch / "out");
}

/// A batch system's warning, even one that comes before the workers can heed it; a stop on request is no failure that
/// --max_restarts would begin again after.
TEST(SftRun, AWarningStopsItWithACheckpoint) {
  const Scratch scratch;
  std::vector<std::string> args = kOneProcess;
  args.insert(args.end(), {"--num_train_epochs", "2000", "--eval_strategy", "no", "--save_steps", "100000", "--max_restarts",
                           "1"});
  Command command(scratch, between_args(scratch, "out", args));
  while (command.workers().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  command.signal(SIGUSR1);
  expect_stopped_with_a_checkpoint(command.wait(), scratch / "out");
  EXPECT_EQ(lines_of(scratch / "out" / "metrics.jsonl").size(), 1U) << "it had waited for the first update";
}

TEST(SftRun, ACtrlCStopsItWithACheckpoint) {
  const Scratch scratch;
  std::vector<std::string> args = kOneProcess;
  args.insert(args.end(), {"--num_train_epochs", "2000", "--eval_strategy", "no", "--save_steps", "100000"});
  Command command(scratch, between_args(scratch, "out", args));
  ASSERT_TRUE(command.wait_for_first_update(scratch / "out"));
  command.signal(SIGINT);
  expect_stopped_with_a_checkpoint(command.wait(), scratch / "out");
}

TEST(SftRun, AWarningDoesNotEndARunWithoutCheckpoints) {
  const Scratch scratch;
  std::vector<std::string> args = kOneProcess;
  args.insert(args.end(), {"--save_strategy", "no", "--eval_strategy", "no", "--num_train_epochs", "10"});
  Command command(scratch, between_args(scratch, "out", args));
  ASSERT_TRUE(command.wait_for_first_update(scratch / "out"));
  command.signal(SIGUSR1);
  const Ended ended = command.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("SIGUSR1: passed on to the workers, which save and leave if they take checkpoints, and else go on"),
            std::string::npos) << ended.err;
}

/// A loss that is to rise has its best at the first evaluation, so that patience ends after the third.
TEST(SftRun, EarlyStoppingIsNotUndoneByAResume) {
  const Scratch scratch;
  std::vector<std::string> args = kOneProcess;
  args.insert(args.end(), {"--num_train_epochs", "4", "--metric_for_best_model", "loss", "--greater_is_better", "true",
                           "--early_stopping_patience", "2"});
  const std::string want = bits_of_run(scratch, "out", args);
  ASSERT_EQ(SftJson::parse(lines_of(scratch / "out/metrics.jsonl").back())["step"], 12) << "of 24";
  args.insert(args.end(), {"--resume_from_checkpoint", "last"});
  const Ended left = run(scratch, between_args(scratch, "out", args));
  EXPECT_EQ(left.exit_code, 0) << left.err;
  EXPECT_NE(left.err.find("nothing to train: early stopping ended the run at update 12 of 24"), std::string::npos) << left.err;
  EXPECT_NE(left.out.find("Nothing was left to train: update 12 was the last one"), std::string::npos) << left.out;
  fs::remove_all(scratch / "out/checkpoint-12");
  EXPECT_TRUE(bits_of_run(scratch, "out", args) == want) << "it stops there again";
  EXPECT_FALSE(fs::exists(scratch / "out/checkpoint-16"));
}

/// What is told of the saved model is true of its files, which are rounded.
TEST(SftRun, GivesTheNumbersOfTheRoundedModel) {
  const Scratch scratch;
  std::vector<std::string> args = kOneProcess;
  args.insert(args.end(), {"--dtype", "bfloat16", "--save_strategy", "no"});
  const Ended ended = run(scratch, between_args(scratch, "out", args));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("the saved model (update 12, in bfloat16): eval_loss"), std::string::npos) << ended.err;
  const SftJson told = SftJson::parse(read_file(scratch / "out" / "eval_results.json"));
  const SftJson between = SftJson::parse(lines_of(scratch / "out" / "metrics.jsonl").back());
  EXPECT_NE(told["eval_loss"], between["eval_loss"]) << "that of the weights that are trained";
  std::vector<std::string> again = kOneProcess;
  again.insert(again.end(), {"--model_name_or_path", (scratch / "out").string(), "--eval_on_start", "--max_steps", "1",
                             "--learning_rate", "0", "--eval_strategy", "steps", "--eval_steps", "1", "--save_strategy", "no",
                             "--dtype", "float32"});
  const Ended read = run(scratch, between_args(scratch, "again", again));
  ASSERT_EQ(read.exit_code, 0) << read.err;
  const SftJson start = SftJson::parse(read_file(scratch / "again" / "eval_results.json"));
  for (const char* name : {"eval_loss", "eval_entropy", "eval_mean_token_accuracy"}) EXPECT_EQ(start[name], told[name]) << name;
}

TEST(SftRun, SavesTheBestModel) {
  const Scratch scratch;
  std::vector<std::string> args = kOneProcess;
  // The loss falls; by this wish the first evaluation is the best.
  args.insert(args.end(), {"--metric_for_best_model", "loss", "--greater_is_better", "true", "--load_best_model_at_end",
                           "--save_total_limit", "1"});
  const Ended ended = run(scratch, between_args(scratch, "out", args));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  const SftJson state = SftJson::parse(read_file(scratch / "out" / "trainer_state.json"));
  const int64_t best = state["best_global_step"];
  ASSERT_EQ(best, 4);
  EXPECT_NE(ended.out.find(fmt::format("the best of them (update {})", best)), std::string::npos) << ended.out;
  EXPECT_EQ(read_file(scratch / "out" / "model.safetensors"),
            read_file(scratch / "out" / fmt::format("checkpoint-{}", best) / "model.safetensors"));
}

}  // namespace
}  // namespace lockstep::cli
