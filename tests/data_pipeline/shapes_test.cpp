// ShareGPT's conversations and rows of token ids, held against what trl 1.16 makes of them.
#include "data_pipeline/loading.h"

namespace lockstep::data {
namespace {

using testing::encoded;
using testing::expect_error;
using testing::load;
using testing::LoadWith;

using Mask = std::vector<uint8_t>;

bool has_line(const DatasetReport& report, std::string_view words) {
  for (const std::string& line : report_lines(report)) {
    if (line.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(Conversations, AreTheMessagesOfOtherKeys) {
  const auto sharegpt = load(R"({"conversations": [{"from": "user", "value": "Hi"}, {"from": "assistant", "value": "Ho"}]})");
  const auto messages = load(R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]})");
  EXPECT_EQ(sharegpt.report.kind, "conversations (from, value)");
  EXPECT_EQ(sharegpt.rows[0].ids, messages.rows[0].ids);
  EXPECT_EQ(sharegpt.rows[0].trained, messages.rows[0].trained);
  EXPECT_FALSE(has_line(sharegpt.report, "roles"));
  const auto named = load(R"({"conversations": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]})");
  EXPECT_EQ(named.report.kind, "messages");
  EXPECT_EQ(named.rows[0].ids, messages.rows[0].ids);
}

TEST(Conversations, KeepTheirRolesAsTrlDoesWhichIsReported) {
  const auto dataset = load(R"({"conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Ho"}]})");
  EXPECT_EQ(dataset.rows[0].ids, encoded("<|im_start|>human\nHi<|im_end|>\n<|im_start|>gpt\nHo<|im_end|>\n", false));
  EXPECT_TRUE(has_line(dataset.report, "such as 'gpt' are given to the chat template as they are"));
}

TEST(Conversations, TakeToolsAndAssistantSpans) {
  LoadWith with{.chat_template = "{% for m in messages %}{% if m['role'] == 'gpt' %}{% generation %}{{ m['content'] }}"
                                 "{% endgeneration %}{% else %}{{ m['content'] }} {% endif %}{% endfor %}"
                                 "{{ tools[0]['name'] if tools }}"};
  with.options.assistant_only_loss = true;
  const auto dataset = load(R"({"conversations": [{"from": "human", "value": "Two"}, {"from": "gpt", "value": "Four"}], )"
                            R"("tools": [{"name": "add"}]})", with);
  const auto& row = dataset.rows.at(0);
  EXPECT_EQ(with.tokenizer.decode(row.ids, false), "Two Fouradd");
  std::vector<int32_t> trained;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (row.trained[i] != 0) trained.push_back(row.ids[i]);
  }
  EXPECT_EQ(with.tokenizer.decode(trained, false), "Four");
}

TEST(TokenRows, AreTakenAsTheyAre) {
  const auto dataset = load(R"({"input_ids": [5, 6, 7], "attention_mask": [1, 1, 1], "source": "x"})");
  EXPECT_EQ(dataset.report.kind, "token ids");
  EXPECT_EQ(dataset.rows[0].ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(dataset.rows[0].trained, (Mask{1, 1, 1}));
  EXPECT_EQ(dataset.report.ignored_columns, (std::vector<std::string>{"source"}));
  // Neither a chat template nor an eos token is needed.
  LoadWith bare{.chat_template = std::nullopt};
  EXPECT_EQ(load(R"({"input_ids": [5, 6, 7]})", bare).rows[0].ids, dataset.rows[0].ids);
}

TEST(TokenRows, MasksAreWhatTrlFoldsIntoLabels) {
  EXPECT_EQ(load(R"({"input_ids": [5, 6, 7], "labels": [-100, 6, 7], "assistant_masks": [0, 0, 1]})").rows[0].trained,
            (Mask{0, 1, 1})) << "labels are used as they are";
  EXPECT_EQ(load(R"({"input_ids": [5, 6, 7], "assistant_masks": [0, 0, 1]})").rows[0].trained, (Mask{0, 0, 1}));
  const std::string both = R"({"input_ids": [5, 6, 7, 8], "completion_mask": [0, 1, 1, 0], "assistant_masks": [1, 0, 1, 1]})";
  const auto without = load(both);
  EXPECT_EQ(without.rows[0].trained, (Mask{1, 0, 1, 1})) << "completion_mask counts with --completion_only_loss alone";
  EXPECT_EQ(without.report.ignored_columns, (std::vector<std::string>{"completion_mask"}));
  LoadWith with;
  with.options.completion_only_loss = true;
  EXPECT_EQ(load(both, with).rows[0].trained, (Mask{0, 0, 1, 0}));
  expect_error(ErrorKind::Data, {"train.jsonl:1", "completion_mask"}, [&] { load(R"({"input_ids": [5, 6]})", with); });
}

TEST(TokenRows, AreCutAndDroppedAsOthers) {
  LoadWith with;
  with.options.max_length = 2;
  const auto dataset = load(R"({"input_ids": [5, 6, 7], "labels": [-100, -100, 7]})" "\n"
                            R"({"input_ids": [5, 6, 7]})" "\n" R"({"input_ids": []})", with);
  EXPECT_EQ(dataset.report.num_fully_masked, 1);
  EXPECT_EQ(dataset.report.num_empty, 1);
  ASSERT_EQ(dataset.rows.size(), 1U);
  EXPECT_EQ(dataset.rows[0].ids, (std::vector<int32_t>{5, 6}));
}

TEST(TokenRows, HaveNoAssistant) {
  LoadWith with;
  with.options.assistant_only_loss = true;
  expect_error(ErrorKind::Usage, {"--assistant_only_loss", "token ids"}, [&] { load(R"({"input_ids": [5, 6]})", with); });
}

}  // namespace
}  // namespace lockstep::data
