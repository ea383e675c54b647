// The whole way on real data with a real tokenizer, against a run of trl 1.16.
#include "data_pipeline/loading.h"
#include "lockstep/data/order.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <sstream>

namespace lockstep::data {
namespace {

using nlohmann::json;
using testing::load;

/// GSM8K as chats: the question from the user, the answer from the assistant.
std::string gsm8k_chats() {
  std::istringstream rows(read_file(LOCKSTEP_TEST_DATA "/gsm8k/test.jsonl"));
  std::string chats;
  for (std::string row; std::getline(rows, row);) {
    const json problem = json::parse(row);
    const json messages = {{{"role", "user"}, {"content", problem.at("question")}},
                           {{"role", "assistant"}, {"content", problem.at("answer")}}};
    chats += json{{"messages", messages}}.dump() + "\n";
  }
  return chats;
}

TEST(Gsm8k, OrderAndTokensFollowTrl) {
  const auto golden = json::parse(read_file(LOCKSTEP_TEST_DATA "/golden/sft-smollm2-gsm8k-fp32.json"));
  const auto tokenizer = text::Tokenizer::from_folder(LOCKSTEP_UNPACKED_TOKENIZERS "/smollm2");
  const auto dataset = load(gsm8k_chats(), {.tokenizer = tokenizer, .vocab_size = 49152});
  fmt::print("{}\n", fmt::join(report_lines(dataset.report), "\n"));
  ASSERT_EQ(dataset.report.num_kept, 1319);
  EXPECT_TRUE(dataset.report.stop_token_is_target);
  EXPECT_EQ(dataset.report.stop_token, "<|im_end|>");

  const Order order({.num_rows = 1319, .global_batch = 8, .seed = 42, .num_epochs = 1});
  int64_t num_tokens = 0;
  const auto& updates = golden.at("updates");
  ASSERT_EQ(updates.size(), 4u);
  for (size_t i = 0; i < updates.size(); ++i) {
    for (const int64_t row : order.samples(static_cast<int64_t>(i) + 1).rows) {
      num_tokens += static_cast<int64_t>(dataset.rows[static_cast<size_t>(row)].ids.size());
    }
    EXPECT_EQ(num_tokens, static_cast<int64_t>(updates[i].at("num_tokens").get<double>())) << "update " << i + 1;
  }
}

TEST(Gsm8k, TokensAtThirtyTwoSamplesPerUpdateFollowTrl) {
  // trl 1.16 in bf16, layout 1x8x4, five updates (four digits were printed from 10,000 on).
  const auto tokenizer = text::Tokenizer::from_folder(LOCKSTEP_UNPACKED_TOKENIZERS "/smollm2");
  const auto dataset = load(gsm8k_chats(), {.tokenizer = tokenizer, .vocab_size = 49152});
  const Order order({.num_rows = 1319, .global_batch = 32, .seed = 42, .num_epochs = 1});
  const std::vector<double> expected{6957, 13880, 20710, 27570, 34430};
  int64_t num_tokens = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    for (const int64_t row : order.samples(static_cast<int64_t>(i) + 1).rows) {
      num_tokens += static_cast<int64_t>(dataset.rows[static_cast<size_t>(row)].ids.size());
    }
    EXPECT_NEAR(static_cast<double>(num_tokens), expected[i], i == 0 ? 0 : 5) << "update " << i + 1;
  }
}

}  // namespace
}  // namespace lockstep::data
