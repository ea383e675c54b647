// What a run that is continued takes from a checkpoint, refuses, and leaves as it is.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace lockstep::cli {
namespace {

using Words = std::vector<std::string>;

/// 50 rows in updates of 12 (5 per epoch), evaluated and saved every second update.
Words resume_args(const Scratch& scratch, const std::string& output, const Words& more) {
  Words args = {"classify", "--model_name_or_path", (kTinyModels / "bert").string(),
                "--dataset_name", (kTestData / "solution-pairs").string(),
                "--text_column", "question", "--text_pair_column", "solution", "--max_length", "48",
                "--ignore_mismatched_sizes", "--max_train_samples", "50", "--max_eval_samples", "23",
                "--learning_rate", "1e-3", "--num_train_epochs", "2", "--eval_strategy", "steps", "--eval_steps", "2",
                "--save_steps", "2", "--nproc_per_node", "1", "--threads_per_process", "1",
                "--per_device_train_batch_size", "12", "--save_optimizer_state", "--disable_tqdm",
                "--output_dir", (scratch / output).string()};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

/// The first evaluation is the best by far.
const Words kBestAtTwo = {"--metric_for_best_model", "accuracy"};

Words joined(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Ended run_well(const Scratch& scratch, const std::string& output, const Words& more) {
  Ended ended = run(scratch, resume_args(scratch, output, more));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  return ended;
}

void expect_in(const std::string& text, const std::string& part) { EXPECT_NE(text.find(part), std::string::npos) << text; }

/// Name -> content of every file.
std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().string()] = read_file(entry.path());
  }
  return files;
}

bool tells_a_time(const std::string& name) {
  return name.ends_with("runtime") || name.ends_with("second") || name.ends_with("_ms") || name.ends_with("_bytes");
}

std::string without_times(const Json& line) {
  std::string text;
  for (const auto& [name, value] : line.items()) {
    if (!tells_a_time(name)) text += name + value.dump() + " ";
  }
  return text + "\n";
}

/// All that a run ends in, but for times.
std::string end_of(const fs::path& output) {
  std::string text = read_file(output / "model.safetensors") + read_file(output / "optimizer_state.safetensors");
  for (const std::string& line : lines_of(output / "metrics.jsonl")) text += without_times(Json::parse(line));
  text += without_times(read_json(output / "eval_results.json"));
  Json state = read_json(output / "trainer_state.json");
  for (const Json& entry : state["log_history"]) text += without_times(entry);
  state.erase("log_history");
  return text + state.dump();
}

/// As a kill before anything of the result was written leaves it.
void undo_the_end(const fs::path& output) {
  for (const char* name : {"model.safetensors", "optimizer_state.safetensors", "config.json", "eval_results.json",
                           "train_results.json", "trainer_state.json"}) {
    fs::remove(output / name);
  }
  change_json(output / "run.json", [](Json& run) { run.erase("ended"); });
}

void flip_a_bit(const fs::path& file) {
  std::string content = read_file(file);
  content[content.size() / 2] ^= 1;
  write_file_atomically(file, content);
}

class EarlyStopping : public testing::TestWithParam<bool> {};

TEST_P(EarlyStopping, IsNotUndoneByAResume) {
  const Scratch scratch;
  const Words wish = joined(kBestAtTwo, {"--early_stopping_patience", "2"});
  const Words args = joined(wish, GetParam() ? Words{"--load_best_model_at_end"} : Words{});
  const Words again = joined(args, {"--resume_from_checkpoint", "last"});
  run_well(scratch, "out", args);
  const std::string want = end_of(scratch / "out");
  ASSERT_TRUE(fs::exists(scratch / "out/checkpoint-6"));
  ASSERT_FALSE(fs::exists(scratch / "out/checkpoint-8")) << "it was to stop early";

  const auto files = files_in(scratch / "out");
  const Ended left = run_well(scratch, "out", again);
  expect_in(left.err, "nothing to train: early stopping ended the run at update 6 of 10. To go on, raise --early_stopping_patience");
  expect_in(left.out, "Nothing was left to train: update 6 was the last one");
  EXPECT_TRUE(files_in(scratch / "out") == files) << "a run that has ended is left as it is";

  undo_the_end(scratch / "out");
  run_well(scratch, "out", again);
  EXPECT_TRUE(end_of(scratch / "out") == want) << "killed after its last checkpoint";

  undo_the_end(scratch / "out");
  fs::remove_all(scratch / "out/checkpoint-6");
  run_well(scratch, "out", joined(again, {"--nproc_per_node", "2", "--per_device_train_batch_size", "6"}));
  EXPECT_TRUE(end_of(scratch / "out") == want) << "killed before its last checkpoint";

  run_well(scratch, "out", joined(again, {"--early_stopping_patience", "9"}));
  EXPECT_TRUE(fs::exists(scratch / "out/checkpoint-10")) << "more patience goes on";
}

INSTANTIATE_TEST_SUITE_P(Resume, EarlyStopping, testing::Bool(),
                         [](const auto& one) { return one.param ? "WithTheBest" : "WithTheLast"; });

TEST(Resume, LeavesARunThatIsDoneAsItIs) {
  const Scratch scratch;
  const std::string rows = (kTestData / "solution-pairs" / "validation.jsonl").string();
  const Words args = {"--test_file", rows, "--max_predict_samples", "9", "--report_to", "tensorboard"};
  run_well(scratch, "out", args);
  const auto files = files_in(scratch / "out");
  const Words again = joined(args, {"--resume_from_checkpoint", "last"});
  const Ended left = run_well(scratch, "out", joined(again, {"--nproc_per_node", "2", "--per_device_train_batch_size", "6"}));
  expect_in(left.err, "nothing to train: update 10 of 10 is done");
  EXPECT_TRUE(files_in(scratch / "out") == files);
  run_well(scratch, "out", joined(again, {"--predictions", (scratch / "said.jsonl").string()}));
  EXPECT_EQ(lines_of(scratch / "said.jsonl").size(), 9U) << "another end was asked for";
}

/// Checkpoints without optimizer state: what has ended is told so and can be saved again; what has not cannot go on.
TEST(Resume, NeedsTheOptimizersStateOnlyToTrain) {
  const Scratch scratch;
  const auto args = [&](const Words& more) {
    Words words = resume_args(scratch, "out", joined({"--save_only_model", "--dtype", "bfloat16", "--load_best_model_at_end"}, more));
    std::erase(words, "--save_optimizer_state");
    return words;
  };
  ASSERT_EQ(run(scratch, args(kBestAtTwo)).exit_code, 0);
  const auto files = files_in(scratch / "out");
  const std::string model = read_file(scratch / "out/model.safetensors");
  EXPECT_TRUE(model == read_file(scratch / "out/checkpoint-2/model.safetensors")) << "the best";
  const Words again = joined(kBestAtTwo, {"--resume_from_checkpoint", "last"});
  const Ended left = run(scratch, args(again));
  EXPECT_EQ(left.exit_code, 0) << left.err;
  expect_in(left.err, "nothing to train: update 10 of 10 is done");
  EXPECT_TRUE(files_in(scratch / "out") == files) << "a run that has ended is left as it is";

  fs::remove(scratch / "out/model.safetensors");
  change_json(scratch / "out/run.json", [](Json& run_record) { run_record.erase("ended"); });
  const Ended saved = run(scratch, args(again));
  EXPECT_EQ(saved.exit_code, 0) << saved.err;
  EXPECT_TRUE(read_file(scratch / "out/model.safetensors") == model) << "killed before it was saved";

  const Ended refused = run(scratch, args(joined(again, {"--num_train_epochs", "3"})));
  EXPECT_EQ(refused.exit_code, 3) << refused.err;
  expect_in(refused.err, (scratch / "out/checkpoint-10").string() + ": was saved without the optimizer's state (--save_only_model), so "
                         "training cannot go on from it. Resume from one that has it, or start a new run from its weights: "
                         "--model_name_or_path ");
}

TEST(Resume, TellsWhatIsContinuedAndWhatIsNot) {
  const Scratch scratch;
  run_well(scratch, "out", {});
  const std::string from = (scratch / "out/checkpoint-4").string();
  const Ended ended = run_well(scratch, "out", {"--resume_from_checkpoint", from, "--global_batch_size", "12"});
  expect_in(ended.err, "weights      all from the checkpoint");
  EXPECT_EQ(ended.err.find("made new from seed"), std::string::npos) << ended.err;
  expect_in(ended.err, "changed global_batch_size: not given -> 12");
  expect_in(ended.out, "Trained updates 5 to 10 of 10 in ");
  const Ended refused = run(scratch, resume_args(scratch, "out", {"--resume_from_checkpoint", from, "--seed", "3", "--min_grains", "4", "--grain_threads", "2"}));
  EXPECT_EQ(refused.exit_code, 2);
  for (const char* part : {"\n    --seed: 42 -> 3", "\n    --data_seed (without it, --seed): 42 -> 3", "\n    --min_grains: 8 -> 4", "\n    --grain_threads: 1 -> 2"}) {
    expect_in(refused.err, part);
  }
}

TEST(Resume, RefusesADamagedCheckpoint) {
  const Scratch scratch;
  run_well(scratch, "out", {});
  const auto resume = [&](const Words& more) {
    const Ended ended = run(scratch, resume_args(scratch, "out", joined({"--resume_from_checkpoint", "last"}, more)));
    EXPECT_EQ(ended.exit_code, 3) << ended.err;
    return ended.err;
  };
  for (const std::string name : {"optimizer/part-0-of-1.safetensors", "model.safetensors", "trainer_state.json", "run.json"}) {
    const fs::path file = scratch / ("out/checkpoint-10/" + name);
    flip_a_bit(file);
    const std::string err = resume({"--max_steps", "12", "--nproc_per_node", "2", "--per_device_train_batch_size", "6"});
    expect_in(err, file.string() + " has the hash ");
    expect_in(err, ", the manifest says ");
    expect_in(err, "--resume_from_checkpoint " + (scratch / "out/checkpoint-8").string());
    flip_a_bit(file);
  }
  run_well(scratch, "out", {"--resume_from_checkpoint", "last", "--max_steps", "12"});
}

TEST(Resume, SavesTheLastModelWhereTheBestIsLost) {
  const Scratch scratch;
  const Words best = joined(kBestAtTwo, {"--load_best_model_at_end"});
  run_well(scratch, "out", best);
  const Words again = joined(best, {"--resume_from_checkpoint", (scratch / "out/checkpoint-8").string()});
  flip_a_bit(scratch / "out/checkpoint-2/model.safetensors");
  expect_in(run_well(scratch, "out", again).out, "the last of them: checkpoint-2, the best, is damaged");
  fs::remove_all(scratch / "out/checkpoint-2");
  const Ended ended = run_well(scratch, "out", again);
  expect_in(ended.err, "checkpoint-2 is gone, the best model so far");
  expect_in(ended.out, "the last of them: checkpoint-2, the best, is gone");
  EXPECT_TRUE(read_file(scratch / "out/model.safetensors") == read_file(scratch / "out/checkpoint-10/model.safetensors"));
}

TEST(Resume, AScheduleThatTheRunDidNotHaveBeginsAnew) {
  const Scratch scratch;
  run_well(scratch, "out", {});
  for (const char* schedule : {"reduce_lr_on_plateau", "greedy"}) {
    const Ended ended = run_well(scratch, "out", {"--resume_from_checkpoint", (scratch / "out/checkpoint-4").string(),
                                                  "--lr_scheduler_type", schedule});
    expect_in(ended.err, "changed lr_scheduler_type: it begins here, with a learning rate of 0.001");
    EXPECT_EQ(Json::parse(lines_of(scratch / "out/metrics.jsonl").back())["step"], 10);
  }
}

}  // namespace
}  // namespace lockstep::cli
