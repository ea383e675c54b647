// A run that breaks on its way: who is to blame, the exit code, and nothing half-written.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::cli {
namespace {

void expect_says(const Ended& ended, const std::string& text) {
  EXPECT_NE(ended.err.find(text), std::string::npos) << "'" << text << "' is not in:\n" << ended.err;
}

/// Far more updates than any test waits for.
std::vector<std::string> endless(const Scratch& scratch) {
  return sft_args(scratch, {"--max_steps", "1000000", "--nproc_per_node", "2", "--threads_per_process", "1"});
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

TEST(BrokenRun, ALossThatIsNotFiniteNamesUpdateAndRows) {
  for (const char* processes : {"1", "2"}) {
    const Scratch scratch;
    const Ended ended = run(scratch, diverging(scratch, {"--nproc_per_node", processes}));
    EXPECT_EQ(ended.exit_code, 7) << ended.err;
    expect_says(ended, "update 2: the loss or a gradient is NaN or infinite: first in layer 0, row");
    expect_says(ended, "--non_finite skip");
    EXPECT_EQ(lines_of(scratch / "out/metrics.jsonl").size(), 1u) << "the update before is on disk";
    EXPECT_EQ(scratch.leftovers_of_failed_run(scratch / "out"), "");
  }
}

TEST(BrokenRun, SkippingLeavesTheUpdateOutAndSaysSo) {
  const Scratch scratch;
  const Ended ended = run(scratch, diverging(scratch, {"--non_finite", "skip", "--nproc_per_node", "2"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  expect_says(ended, "SKIPPED (not finite)");
  EXPECT_NE(ended.out.find("Trained 4 updates, 3 of them SKIPPED"), std::string::npos) << ended.out;

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
