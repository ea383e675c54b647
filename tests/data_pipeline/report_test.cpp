#include "data_pipeline/loading.h"

#include <fmt/ranges.h>

namespace lockstep::data {
namespace {

using testing::load;
using testing::LoadWith;

DatasetReport sample_report() {
  DatasetReport report;
  report.files = {"data/train.jsonl"};
  report.num_rows = 1234567;
  report.num_kept = 1234000;
  report.num_fully_masked = 560;
  report.num_empty = 7;
  report.num_truncated = 12345;
  report.num_tokens_cut = 999999;
  report.max_length = 1024;
  report.num_tokens = 250000000;
  report.num_targets = 100000000;
  report.num_prompt_mismatch = 2;
  report.first_mismatch = "data/train.jsonl:8: ' '";
  report.longest = 1024;
  report.shortest = 12;
  report.kind = "prompt-completion (messages)";
  report.completion_only = true;
  report.ignored_columns = {"id", "source"};
  report.stop_token = "<|im_end|>";
  report.num_rows_without_stop = 1000;
  report.example = "<|im_start|>user\nHi<|im_end|>\n[[Ho<|im_end|>]]";
  return report;
}

TEST(Report, NamesEveryCountWithSeparatorsAndShares) {
  const std::vector<std::string> expected{
      "  data         data/train.jsonl",
      "  rows         1,234,567 of kind prompt-completion (messages), 1,234,000 kept (> 99.9 %)",
      "  dropped      560 rows without a trained token left after the cut",
      "  dropped      7 rows with nothing to predict (fewer than two tokens, or only the first one trained)",
      "  cut          12,345 rows (1.0 %) at max_length = 1,024: 999,999 tokens lost",
      "  tokens       250,000,000 in kept rows, 12 to 1,024 per row, 202.6 on average",
      "  trained      the completion: 100,000,000 targets (40.0 % of the tokens)",
      "  stop token   <|im_end|> is not trained on in 1,000 rows (0.1 %); rows that are cut lose it",
      "  mismatch     in 2 rows the prompt alone tokenizes otherwise than with its completion; training starts where "
      "they part. First: data/train.jsonl:8: ' '",
      "  not used     columns id, source",
      "  row 1 of the data, trained parts in [[ ]]:",
      "    | <|im_start|>user",
      "    | Hi<|im_end|>",
      "    | [[Ho<|im_end|>]]",
  };
  const auto lines = report_lines(sample_report());
  EXPECT_EQ(lines, expected) << fmt::format("{}", fmt::join(lines, "\n"));
}

TEST(Report, LeavesOutWhatDidNotHappen) {
  auto report = load(R"({"text": "one two"})").report;
  const auto text = fmt::format("{}", fmt::join(report_lines(report), "\n"));
  for (const char* absent : {"dropped", "cut  ", "mismatch", "not used"}) {
    EXPECT_EQ(text.find(absent), std::string::npos) << text;
  }
  EXPECT_NE(text.find("1 of kind text, 1 kept (100.0 %)"), std::string::npos) << text;
  EXPECT_NE(text.find("<|im_end|> is trained on in every row"), std::string::npos) << text;
}

TEST(Report, WarnsWhenNoRowTeachesToStop) {
  const auto report = load(R"({"messages": [{"role": "user", "content": "one two"}]})",
                           {.chat_template = "{{ messages[0]['content'] }}"}).report;
  EXPECT_EQ(report.num_rows_without_stop, 1);
  EXPECT_FALSE(report.stop_token_is_target);
  const auto text = fmt::format("{}", fmt::join(report_lines(report), "\n"));
  EXPECT_NE(text.find("will not learn to stop"), std::string::npos) << text;
}

TEST(Example, MarksTheTrainedPart) {
  const auto report = load(R"({"prompt": "one", "completion": " two"})").report;
  EXPECT_EQ(report.example, "one[[ two<|im_end|>]]");
}

TEST(Example, IsShortenedInTheMiddleAndKeepsItsMarks) {
  std::string words;
  for (int i = 0; i < 500; ++i) words += " \u00e4two";
  LoadWith with;
  with.options.max_length.reset();
  const auto report = load(R"({"prompt": "one", "completion": ")" + words + "\"}", with).report;
  EXPECT_LT(report.example.size(), 1000u);
  EXPECT_TRUE(report.example.starts_with("one[[ \u00e4two")) << report.example;
  EXPECT_TRUE(report.example.ends_with("two<|im_end|>]]")) << report.example;
  EXPECT_NE(report.example.find("(... 1910 characters ...)"), std::string::npos) << report.example;
}

TEST(Example, CannotSendControlCharactersToTheTerminal) {
  const auto report = load(R"({"text": "one\u001b[31mtwo\ttwo\u009b1m"})").report;
  EXPECT_EQ(report.example.find('\x1b'), std::string::npos);
  EXPECT_EQ(report.example.find("\u009b"), std::string::npos);
  EXPECT_NE(report.example.find("?[31mtwo two?1m"), std::string::npos) << report.example;
}

}  // namespace
}  // namespace lockstep::data
