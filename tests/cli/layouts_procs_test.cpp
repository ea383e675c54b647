// The law with real processes: files of runs that differ in layout alone are equal byte for byte.
#include "command.h"
#include "model_files.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

struct Layout {
  int processes, per_device, accumulation;
};

std::vector<std::string> layout_flags(const Layout& layout, const std::vector<std::string>& more) {
  std::vector<std::string> flags = {"--nproc_per_node", std::to_string(layout.processes),
                                    "--per_device_train_batch_size", std::to_string(layout.per_device),
                                    "--gradient_accumulation_steps", std::to_string(layout.accumulation),
                                    "--max_steps", "6", "--learning_rate", "1e-3", "--grain_tokens", "256",
                                    "--save_optimizer_state"};
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

struct Result {
  std::string weights, optimizer, metrics;
};

/// What of a line of metrics may not depend on the layout.
std::string facts(const std::string& line) {
  const Json all = Json::parse(line);
  Json kept;
  for (const char* key : {"step", "loss", "grad_norm", "learning_rate", "entropy", "mean_token_accuracy", "num_tokens",
                          "epoch", "num_samples", "num_grains", "block_hashes"}) {
    kept[key] = all.at(key);
  }
  return kept.dump() + "\n";
}

Result train(const Layout& layout, const std::vector<std::string>& more = {}) {
  const Scratch scratch;
  const Ended ended = run(scratch, sft_args(scratch, layout_flags(layout, more)));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  Result result;
  result.weights = read_file(scratch / "out/model.safetensors");
  result.optimizer = read_file(scratch / "out/optimizer_state.safetensors");
  const std::vector<std::string> lines = lines_of(scratch / "out/metrics.jsonl");
  EXPECT_EQ(lines.size(), 6u);
  for (const std::string& line : lines) result.metrics += facts(line);
  return result;
}

void expect_same(const Result& a, const Result& b, const std::string& what) {
  EXPECT_EQ(a.metrics, b.metrics) << what;
  // Not EXPECT_EQ: nobody wants to see the bytes.
  EXPECT_TRUE(a.weights == b.weights) << what << ": model.safetensors differs";
  EXPECT_TRUE(a.optimizer == b.optimizer) << what << ": optimizer_state.safetensors differs";
}

TEST(LawWithProcesses, TheLayoutCannotBeSeen) {
  const Result simplest = train({1, 24, 1}, {"--threads_per_process", "1"});
  ASSERT_GT(simplest.weights.size(), 100'000u);
  ASSERT_GT(simplest.optimizer.size(), 3 * 100'000u);
  const Layout layouts[] = {{2, 4, 3}, {3, 8, 1}, {4, 6, 1}};
  for (const Layout& layout : layouts) {
    expect_same(simplest, train(layout),
                fmt::format("{}x{}x{}", layout.processes, layout.per_device, layout.accumulation));
  }
  expect_same(simplest, train({1, 24, 1}, {"--threads_per_process", "2"}), "two threads");
  expect_same(simplest, train({2, 12, 1}, {"--gradient_checkpointing", "true"}), "recomputed");
  expect_same(simplest, train({1, 12, 2}, {"--gradient_checkpointing", "false"}), "kept");
  expect_same(simplest, train({2, 12, 1}, {"--grain_order", "shuffled:5"}), "grains shuffled");
}

TEST(LawWithProcesses, Float32ReductionCanBeSeen) {
  const Result one = train({1, 24, 1}, {"--reduction", "float32", "--threads_per_process", "1"});
  const Result three = train({3, 8, 1}, {"--reduction", "float32", "--threads_per_process", "1"});
  EXPECT_NE(one.metrics, three.metrics);
  EXPECT_FALSE(one.optimizer == three.optimizer);
}

}  // namespace
}  // namespace lockstep::cli
