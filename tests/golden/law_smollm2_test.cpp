// The law with a real model and real processes: layouts cannot be seen in the files a run leaves.
#include "golden/sft_run.h"

#include "lockstep/base/hash.h"

#include <gtest/gtest.h>

namespace lockstep::golden {
namespace {

struct Layout {
  int processes, per_device, accumulation;
  std::string text() const { return fmt::format("{}x{}x{}", processes, per_device, accumulation); }
};

/// Hashes, so that only one run's files (2 GB) lie on the disk at a time.
struct Outcome {
  uint64_t model = 0, optimizer_state = 0;
  std::vector<std::vector<std::string>> block_hashes;
};

Outcome train(const Layout& layout) {
  const SftRun run({"--dataset_name", LOCKSTEP_TEST_DATA "/gsm8k/chats-96.jsonl", "--max_length", "64", "--max_steps",
                    "2", "--save_optimizer_state", "true", "--threads_per_process", "1",
                    "--nproc_per_node", std::to_string(layout.processes),
                    "--per_device_train_batch_size", std::to_string(layout.per_device),
                    "--gradient_accumulation_steps", std::to_string(layout.accumulation)});
  Outcome outcome;
  outcome.model = hash_bytes(MappedFile(run.file("model.safetensors")).bytes());
  outcome.optimizer_state = hash_bytes(MappedFile(run.file("optimizer_state.safetensors")).bytes());
  for (const UpdateLine& update : run.updates()) {
    outcome.block_hashes.push_back(update.block_hashes);
    // With one of N processes idle the balance is at most (N - 1) / N.
    EXPECT_GT(update.balance, (layout.processes - 1.0) / layout.processes)
        << "a process of " << layout.text() << " may have computed nothing";
  }
  return outcome;
}

TEST(LawSmolLM2, TheLayoutCannotBeSeen) {
  const Outcome simplest = train({1, 8, 1});
  ASSERT_EQ(simplest.block_hashes.size(), 2U);
  EXPECT_NE(simplest.block_hashes[0], simplest.block_hashes[1]) << "the second update changed nothing";
  for (const Layout& layout : {Layout{1, 1, 8}, Layout{2, 2, 2}, Layout{4, 2, 1}}) {
    const Outcome outcome = train(layout);
    EXPECT_EQ(outcome.block_hashes, simplest.block_hashes) << layout.text();
    EXPECT_EQ(outcome.model, simplest.model) << layout.text() << ": model.safetensors";
    EXPECT_EQ(outcome.optimizer_state, simplest.optimizer_state) << layout.text() << ": optimizer_state.safetensors";
  }
}

}  // namespace
}  // namespace lockstep::golden
