// A run that breaks on its way: who is to blame, the exit code, and nothing half-written.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstring>

namespace lockstep::cli {
namespace {

void expect_says(const Ended& ended, const std::string& text) {
  EXPECT_NE(ended.err.find(text), std::string::npos) << "'" << text << "' is not in:\n" << ended.err;
}

/// Far more updates than any test waits for.
std::vector<std::string> endless(const Scratch& scratch) {
  return sft_args(scratch, {"--max_steps", "1000000", "--nproc_per_node", "2", "--threads_per_process", "1",
                            "--save_strategy", "no"});
}

TEST(BrokenRun, AKilledWorkerIsNamedWithItsSignal) {
  const Scratch scratch;
  Command command(scratch, endless(scratch));
  ASSERT_TRUE(command.wait_for_first_update(scratch / "out"));
  const std::vector<pid_t> workers = command.workers();
  ASSERT_EQ(workers.size(), 2u);
  kill(workers[1], SIGKILL);
  const Ended ended = command.wait();
  EXPECT_EQ(ended.exit_code, 128 + SIGKILL);
  expect_says(ended, fmt::format("rank 1 (pid {}) failed first: killed by SIGKILL", workers[1]));
  expect_says(ended, "hint: ");
  EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
}

TEST(BrokenRun, AStoppedWorkerIsTakenForDead) {
  const Scratch scratch;
  Command command(scratch, endless(scratch));
  ASSERT_TRUE(command.wait_for_first_update(scratch / "out"));
  const std::vector<pid_t> workers = command.workers();
  ASSERT_EQ(workers.size(), 2u);
  kill(workers[1], SIGSTOP);
  const Ended ended = command.wait();
  EXPECT_EQ(ended.exit_code, 6);
  expect_says(ended, fmt::format("rank 1 (pid {}) gave no sign of life", workers[1]));
  expect_says(ended, "start it again");
  EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
}

TEST(BrokenRun, AnInterruptEndsAllWorkers) {
  for (const int signal : {SIGINT, SIGTERM}) {
    const Scratch scratch;
    Command command(scratch, endless(scratch));
    ASSERT_TRUE(command.wait_for_first_update(scratch / "out"));
    command.signal(signal);
    const Ended ended = command.wait();
    EXPECT_EQ(ended.exit_code, 128 + signal);
    expect_says(ended, signal == SIGINT ? "stopped by SIGINT" : "stopped by SIGTERM");
    EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
  }
}

std::vector<std::string> diverging(const Scratch& scratch, const std::vector<std::string>& more) {
  std::vector<std::string> args = sft_args(scratch, {"--learning_rate", "1e30", "--max_steps", "4"});
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(BrokenRun, ALossThatIsNotFiniteNamesUpdateAndCause) {
  for (const char* processes : {"1", "2"}) {
    const Scratch scratch;
    const Ended ended = run(scratch, diverging(scratch, {"--nproc_per_node", processes}));
    EXPECT_EQ(ended.exit_code, 7) << ended.err;
    expect_says(ended, "update 2: the loss or a gradient is NaN or infinite, because the weights are spoilt: ");
    expect_says(ended, "Lower --learning_rate");
    EXPECT_EQ(lines_of(scratch / "out/metrics.jsonl").size(), 1u) << "the update before is on disk";
    EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
  }
}

TEST(BrokenRun, SkippingLeavesTheUpdateOutAndSaysSo) {
  const Scratch scratch;
  const Ended ended = run(scratch, diverging(scratch, {"--non_finite", "skip", "--nproc_per_node", "2"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_says(ended, "SKIPPED (not finite)");
  EXPECT_NE(ended.out.find("the last was skipped and has no loss"), std::string::npos) << ended.out;
  EXPECT_EQ((ended.out + ended.err).find("-nan"), std::string::npos) << ended.err;
  EXPECT_NE(ended.out.find("Only 1 of 4 updates were applied, 3 SKIPPED (not finite): the model is hardly trained"), std::string::npos) << ended.out;

  const std::vector<std::string> lines = lines_of(scratch / "out/metrics.jsonl");
  ASSERT_EQ(lines.size(), 4u);
  const Json applied = Json::parse(lines[0]), skipped = Json::parse(lines[1]), last = Json::parse(lines[3]);
  EXPECT_FALSE(applied["skipped"].get<bool>());
  EXPECT_TRUE(skipped["skipped"].get<bool>());
  EXPECT_TRUE(skipped["loss"].is_null());
  EXPECT_TRUE(skipped["grad_norm"].is_null());
  EXPECT_EQ(applied["block_hashes"], last["block_hashes"]) << "a skipped update must not touch a weight";
  EXPECT_EQ(scratch.leftovers(), "");
}

TEST(BrokenRun, AFailureKeepsTheModelOfAnEarlierRun) {
  const Scratch scratch;
  ASSERT_EQ(run(scratch, sft_args(scratch)).exit_code, 0);
  const std::string before = read_file(scratch / "out/model.safetensors");
  ASSERT_EQ(run(scratch, diverging(scratch, {})).exit_code, 7);
  EXPECT_TRUE(before == read_file(scratch / "out/model.safetensors"));
  EXPECT_TRUE(fs::exists(scratch / "out/config.json"));
  EXPECT_EQ(scratch.leftovers(), "");
}

TEST(BrokenRun, ASecondRunIntoTheSameFolderIsRefused) {
  const Scratch scratch;
  Command first(scratch, endless(scratch));
  ASSERT_TRUE(first.wait_for_first_update(scratch / "out"));
  const Scratch other;
  const Ended second = run(other, sft_args(other, {"--output_dir", (scratch / "out").string()}));
  EXPECT_EQ(second.exit_code, 4) << second.err;
  expect_says(second, fmt::format("another run (pid {}) is writing there", first.workers().at(0)));
  expect_says(second, "name another folder");
  EXPECT_FALSE(lines_of(scratch / "out/metrics.jsonl").empty()) << "the first run's metrics are untouched";
  EXPECT_FALSE(fs::exists(scratch / "out/metrics.previous.jsonl"));
}

TEST(BrokenRun, AFailureLeavesAnotherRunsUnfinishedSave) {
  const Scratch scratch;
  const fs::path foreign = scratch / ".out.tmp-1-00000000";
  fs::create_directory(foreign);
  ASSERT_EQ(run(scratch, diverging(scratch, {})).exit_code, 7);
  EXPECT_TRUE(fs::exists(foreign));
}

TEST(BrokenRun, SkippingEveryUpdateIsAFailure) {
  const Scratch scratch;
  fs::copy(kTinyModels / "llama", scratch / "model");
  // Finite weights whose products are not.
  change_raw(scratch / "model/model.safetensors", [](RawSafetensors& raw) {
    const float huge = 3e38F;
    const auto at = raw.header["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0].get<size_t>();
    for (size_t i = 0; i < 64; ++i) std::memcpy(raw.data.data() + at + 4 * i, &huge, sizeof(huge));
  });
  const Ended ended = run(scratch, sft_args(scratch, {"--non_finite", "skip", "--model_name_or_path",
                                                      (scratch / "model").string()}));
  EXPECT_EQ(ended.exit_code, 7) << ended.err;
  expect_says(ended, "all 2 updates were skipped");
  EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
}

TEST(BrokenRun, WhatAKilledFrontProgramLeftIsRemovedByTheNext) {
  const Scratch scratch;
  {
    Command command(scratch, endless(scratch));
    ASSERT_TRUE(command.wait_for_first_update(scratch / "out"));
    command.signal(SIGKILL);
    command.wait();
  }
  std::vector<fs::path> left;
  for (const fs::directory_entry& entry : fs::directory_iterator(scratch / "tmp")) left.push_back(entry.path());
  ASSERT_EQ(left.size(), 1u);
  // Young folders are let be: their owner may be about to lock them.
  fs::last_write_time(left[0], fs::file_time_type::clock::now() - std::chrono::minutes(5));
  ASSERT_EQ(run(scratch, sft_args(scratch)).exit_code, 0);
  EXPECT_EQ(scratch.leftovers(), "");
}

TEST(MoreProcessesThanSamples, IsNoError) {
  const Scratch scratch;
  const auto num_grains = [&] { return Json::parse(lines_of(scratch / "out/metrics.jsonl").at(0))["num_grains"]; };
  const Ended two = run(scratch, sft_args(scratch, {"--nproc_per_node", "4", "--global_batch_size", "2"}));
  EXPECT_EQ(two.exit_code, 0) << two.err;
  EXPECT_EQ(num_grains(), 2);
  expect_says(two, "too few samples per update");
  const Ended one = run(scratch, sft_args(scratch, {"--nproc_per_node", "4", "--per_device_train_batch_size", "1",
                                                    "--grain_tokens", "256", "--min_grains", "1"}));
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(num_grains(), 1);
}

}  // namespace
}  // namespace lockstep::cli
