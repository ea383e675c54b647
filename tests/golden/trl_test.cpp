// The same job as trl: SFT of SmolLM2 on GSM8K, update by update. Wanted values are trl's own (tests/data/golden).
#include "golden/sft_run.h"

#include "lockstep/data/order.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace lockstep::golden {
namespace {

using nlohmann::json;

json wanted_values(const std::string& name) {
  return json::parse(read_file(fs::path(LOCKSTEP_TEST_DATA) / "golden" / name));
}

SftRun train(const std::string& chats_file, std::vector<std::string> flags) {
  write_file_atomically(chats_file, gsm8k_chats());
  flags.insert(flags.end(), {"--dataset_name", chats_file, "--learning_rate", "2e-5", "--lr_scheduler_type", "linear",
                             "--seed", "42", "--max_length", "1024", "--per_device_train_batch_size", "8"});
  return SftRun(std::move(flags));
}

#define EXPECT_WITHIN(relative, got, wanted) EXPECT_NEAR(got, wanted, (relative) * std::abs(wanted))

/// A count that was printed with four digits.
int64_t to_four_digits(int64_t count) {
  int64_t unit = 1;
  while (count / unit >= 10'000) unit *= 10;
  return (count + unit / 2) / unit * unit;
}

TEST(SameJobAsTrl, TheOrderOfTheSamples) {
  const std::vector<int64_t> wanted = wanted_values("sft-smollm2-gsm8k-fp32.json").at("randperm_first_32");
  const data::Order order({.num_rows = 1'319, .global_batch = 8, .seed = 42, .max_steps = 4});
  std::vector<int64_t> rows;
  for (int64_t update = 1; update <= 4; ++update) {
    const auto samples = order.samples(update).rows;
    rows.insert(rows.end(), samples.begin(), samples.end());
  }
  EXPECT_EQ(rows, wanted);
}

TEST(SameJobAsTrl, FourUpdatesInFloat32) {
  const json wanted = wanted_values("sft-smollm2-gsm8k-fp32.json").at("updates");
  const TempFolder data("golden-data");
  const SftRun run = train(data.path() / "chats.jsonl", {"--bf16", "false", "--max_steps", "4"});
  ASSERT_EQ(run.updates().size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE("update " + std::to_string(i + 1));
    const UpdateLine& got = run.updates()[i];
    EXPECT_WITHIN(1e-3, got.loss, wanted[i].at("loss").get<double>());
    EXPECT_WITHIN(2e-2, got.grad_norm, wanted[i].at("grad_norm").get<double>());
    EXPECT_WITHIN(1e-12, got.learning_rate, wanted[i].at("learning_rate").get<double>());
    EXPECT_WITHIN(1e-3, got.entropy, wanted[i].at("entropy").get<double>());
    // Of some 1,700 targets two may have flipped between nearly equal logits.
    EXPECT_NEAR(got.mean_token_accuracy, wanted[i].at("mean_token_accuracy").get<double>(), 2.0 / 1'500);
    EXPECT_EQ(got.num_tokens, wanted[i].at("num_tokens").get<int64_t>());
  }
}

TEST(SameJobAsTrl, FiveUpdatesInBfloat16WithAccumulation) {
  const json wanted = wanted_values("sft-smollm2-gsm8k-bf16.json").at("updates");
  const TempFolder data("golden-data");
  const SftRun run =
      train(data.path() / "chats.jsonl", {"--gradient_accumulation_steps", "4", "--max_steps", "5"});
  ASSERT_EQ(run.updates().size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE("update " + std::to_string(i + 1));
    const UpdateLine& got = run.updates()[i];
    EXPECT_WITHIN(1e-2, got.loss, wanted[i].at("loss").get<double>());
    EXPECT_WITHIN(5e-2, got.grad_norm, wanted[i].at("grad_norm").get<double>());
    EXPECT_EQ(to_four_digits(got.num_tokens), wanted[i].at("num_tokens").get<int64_t>());
  }
}

}  // namespace
}  // namespace lockstep::golden
