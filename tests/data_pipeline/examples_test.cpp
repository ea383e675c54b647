// Ids and masks, held against what trl 1.16 does (text encoded here by hand).
#include "data_pipeline/loading.h"

#include <fmt/format.h>

#include <numeric>

namespace lockstep::data {
namespace {

using testing::encoded;
using testing::expect_error;
using testing::load;
using testing::LoadWith;
using testing::tiny_tokenizer;

using Mask = std::vector<uint8_t>;

/// `masked` zeros, then ones.
Mask mask(size_t masked, size_t size) {
  Mask result(size, 1);
  std::fill_n(result.begin(), masked, uint8_t{0});
  return result;
}

constexpr const char* kChat =
    R"({"messages": [{"role": "user", "content": "Two and two?"}, {"role": "assistant", "content": "Four."}]})";
constexpr const char* kPromptMessages =
    R"({"prompt": [{"role": "user", "content": "Two and two?"}], )"
    R"("completion": [{"role": "assistant", "content": "Four."}]})";
constexpr const char* kRenderedPrompt = "<|im_start|>user\nTwo and two?<|im_end|>\n<|im_start|>assistant\n";
constexpr const char* kRenderedCompletion = "Four.<|im_end|>\n";

TEST(Text, GetsTheEosTokenUnlessItEndsWithIt) {
  const auto dataset = load("{\"text\": \"Two and two.\"}\n{\"text\": \"Two and two.<|im_end|>\"}\n");
  const auto expected = encoded("Two and two.<|im_end|>");
  ASSERT_EQ(expected.back(), tiny_tokenizer().eos_id());
  for (const auto& row : dataset.rows) {
    EXPECT_EQ(row.ids, expected);
    EXPECT_EQ(row.trained, mask(0, expected.size()));
  }
  EXPECT_TRUE(dataset.report.stop_token_is_target);
  EXPECT_EQ(dataset.report.stop_token, "<|im_end|>");
}

TEST(Text, OptionNamesTheColumnAndTheEosToken) {
  LoadWith with;
  with.options.dataset_text_field = "body";
  with.options.eos_token = "<|endoftext|>";
  const auto dataset = load(R"({"body": "Two and two."})", with);
  EXPECT_EQ(dataset.rows[0].ids, encoded("Two and two.<|endoftext|>"));
  EXPECT_EQ(dataset.report.stop_token, "<|endoftext|>");
}

TEST(Text, AnEosTokenOutsideTheVocabularyIsAUsageError) {
  LoadWith with;
  with.options.eos_token = "<|stop|>";
  expect_error(ErrorKind::Usage, {"--eos_token <|stop|>"}, [&] { load(R"({"text": "a"})", with); });
}

TEST(PromptCompletion, OfTextTrainsWhatFollowsTheCommonPrefix) {
  const auto dataset = load(R"({"prompt": "Two and two?", "completion": " Four."})");
  const auto& row = dataset.rows.at(0);
  EXPECT_EQ(dataset.report.kind, "prompt-completion (text)");
  EXPECT_TRUE(dataset.report.completion_only);
  EXPECT_EQ(row.ids, encoded("Two and two? Four.<|im_end|>"));
  EXPECT_EQ(row.trained, mask(encoded("Two and two?").size(), row.ids.size()));
  EXPECT_EQ(dataset.report.num_prompt_mismatch, 0);
}

TEST(PromptCompletion, OfMessagesRendersThePromptWithTheGenerationPrompt) {
  const auto dataset = load(kPromptMessages);
  const auto& row = dataset.rows.at(0);
  EXPECT_EQ(dataset.report.kind, "prompt-completion (messages)");
  EXPECT_EQ(row.ids, encoded(std::string(kRenderedPrompt) + kRenderedCompletion, false));
  EXPECT_EQ(row.trained, mask(encoded(kRenderedPrompt, false).size(), row.ids.size()));
  EXPECT_EQ(row.num_targets(), static_cast<int64_t>(encoded(kRenderedCompletion, false).size()));
  EXPECT_TRUE(dataset.report.stop_token_is_target) << "<|im_end|> stands before a trained newline";
}

TEST(PromptCompletion, TrainsAllWhenCompletionOnlyIsSwitchedOff) {
  LoadWith with;
  with.options.completion_only_loss = false;
  const auto dataset = load(kPromptMessages, with);
  EXPECT_EQ(dataset.rows[0].trained, mask(0, dataset.rows[0].ids.size()));
  EXPECT_FALSE(dataset.report.completion_only);
}

TEST(PromptCompletion, AMismatchIsCountedAndTheFirstIsQuoted) {
  // The prompt ends inside a token of the joint text.
  const auto dataset = load("{\"prompt\": \"and th\", \"completion\": \"e three\"}\n"
                            "{\"prompt\": \"two\", \"completion\": \"; one\"}\n");
  const auto prompt = encoded("and th");
  const auto joint = encoded("and the three<|im_end|>");
  const auto parting = std::mismatch(prompt.begin(), prompt.end(), joint.begin()).first;
  const auto common = static_cast<size_t>(parting - prompt.begin());
  ASSERT_LT(common, prompt.size()) << "the tokenizer must split 'th' + 'e' otherwise than 'the'";
  EXPECT_EQ(dataset.rows[0].trained, mask(common, joint.size()));
  EXPECT_EQ(dataset.report.num_prompt_mismatch, 1);
  EXPECT_NE(dataset.report.first_mismatch.find("train.jsonl:1"), std::string::npos) << dataset.report.first_mismatch;
}

TEST(PromptCompletion, CompletionOnlyWithoutPromptsIsAUsageError) {
  LoadWith with;
  with.options.completion_only_loss = true;
  expect_error(ErrorKind::Usage, {"--completion_only_loss", "messages"}, [&] { load(kChat, with); });
}

TEST(Messages, TrainOnEveryTokenOfTheRenderedChat) {
  const auto dataset = load(kChat);
  EXPECT_EQ(dataset.rows[0].ids, encoded(std::string(kRenderedPrompt) + kRenderedCompletion, false));
  EXPECT_EQ(dataset.rows[0].trained, mask(0, dataset.rows[0].ids.size()));
}

constexpr const char* kMarkedTemplate =
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
    "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}{% endgeneration %}\n"
    "{% else %}{{ m['content'] }}<|im_end|>\n{% endif %}{% endfor %}";

TEST(AssistantOnly, MarksTheTokensThatOverlapTheGenerationBlocks) {
  LoadWith with{.chat_template = kMarkedTemplate};
  with.options.assistant_only_loss = true;
  const auto dataset = load(
      R"({"messages": [{"role": "user", "content": "Two?"}, {"role": "assistant", "content": "Four."}, )"
      R"({"role": "user", "content": "Six?"}, {"role": "assistant", "content": "Ten."}]})", with);
  const std::vector<std::pair<std::string, uint8_t>> pieces{
      {"<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n", 0}, {"Four.<|im_end|>", 1},
      {"<|im_start|>user\nSix?<|im_end|>\n<|im_start|>assistant\n", 0}, {"Ten.<|im_end|>", 1}};
  // trim_blocks takes the newline after a block tag away.
  std::string text;
  for (const auto& [piece, trained] : pieces) text += piece;
  const auto& row = dataset.rows.at(0);
  ASSERT_EQ(tiny_tokenizer().decode(row.ids, false), text);
  std::string decoded_trained;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (row.trained[i] != 0) decoded_trained += tiny_tokenizer().decode(std::span(&row.ids[i], 1), false);
  }
  EXPECT_EQ(decoded_trained, "Four.<|im_end|>Ten.<|im_end|>");
  EXPECT_TRUE(dataset.report.assistant_only);
  EXPECT_TRUE(dataset.report.stop_token_is_target);
}

TEST(AssistantOnly, IsRefusedWhereItHasNoObject) {
  LoadWith with;
  with.options.assistant_only_loss = true;
  expect_error(ErrorKind::Usage, {"{% generation %}", "--chat_template_path"}, [&] { load(kChat, with); });
  expect_error(ErrorKind::Usage, {"rows of messages", "kind text"}, [&] { load(R"({"text": "a"})", with); });
  with.chat_template = kMarkedTemplate;
  expect_error(ErrorKind::Data, {"train.jsonl:2", "no token of the assistant"}, [&] {
    load(std::string(kChat) + "\n" + R"({"messages": [{"role": "user", "content": "Two?"}]})", with);
  });
}

TEST(Cutting, KeepsTheStartAndCountsWhatIsLost) {
  LoadWith with;
  with.options.max_length = 5;
  const auto dataset = load("{\"text\": \"one two three four five six seven\"}\n{\"text\": \"one\"}\n", with);
  const auto whole = encoded("one two three four five six seven<|im_end|>");
  ASSERT_GT(whole.size(), 5u);
  EXPECT_EQ(dataset.rows[0].ids, std::vector<int32_t>(whole.begin(), whole.begin() + 5));
  EXPECT_EQ(dataset.rows[0].trained.size(), 5u);
  EXPECT_EQ(dataset.report.num_truncated, 1);
  EXPECT_EQ(dataset.report.num_tokens_cut, static_cast<int64_t>(whole.size()) - 5);
  EXPECT_FALSE(dataset.report.stop_token_is_target);
  EXPECT_EQ(dataset.report.num_rows_without_stop, 1);
  with.options.truncation_mode = "keep_end";
  EXPECT_EQ(load(R"({"text": "one two three four five six seven"})", with).rows[0].ids,
            std::vector<int32_t>(whole.end() - 5, whole.end()));
  with.options.max_length.reset();
  EXPECT_EQ(load(R"({"text": "one two three four five six seven"})", with).rows[0].ids, whole);
}

TEST(Cutting, DropsRowsWithoutATargetAndCountsThem) {
  LoadWith with;
  with.options.max_length = static_cast<int64_t>(encoded(kRenderedPrompt, false).size());
  const auto short_row = R"({"prompt": [{"role": "user", "content": "2"}], )"
                         R"("completion": [{"role": "assistant", "content": "4"}]})";
  const auto dataset = load(std::string(kPromptMessages) + "\n" + short_row + "\n", with);
  EXPECT_EQ(dataset.report.num_rows, 2);
  EXPECT_EQ(dataset.report.num_fully_masked, 1);
  ASSERT_EQ(dataset.report.num_kept, 1);
  EXPECT_EQ(dataset.rows[0].source_row, 1);
  expect_error(ErrorKind::Data, {"none of the 1 rows", "1 have no trained token", "--max_length"},
               [&] { load(kPromptMessages, with); });
}

TEST(Cutting, RowsThatPredictNothingAreEmpty) {
  // "" becomes the eos token alone: one token, no target after the shift.
  const auto dataset = load("{\"text\": \"\"}\n{\"text\": \"one two\"}\n");
  EXPECT_EQ(dataset.report.num_empty, 1);
  EXPECT_EQ(dataset.report.num_kept, 1);
  EXPECT_EQ(dataset.report.num_targets, static_cast<int64_t>(encoded("one two<|im_end|>").size()) - 1);
  expect_error(ErrorKind::Data, {"1 have fewer than two tokens"}, [] { load(R"({"text": ""})"); });
}

TEST(Cutting, AMaxLengthBelowOneIsAUsageError) {
  for (const int64_t length : {0, -3}) {
    LoadWith with;
    with.options.max_length = length;
    expect_error(ErrorKind::Usage, {fmt::format("--max_length {}", length), "Try"}, [&] { load(kChat, with); });
  }
}

TEST(Vocabulary, AnIdOutsideTheModelNamesRowTokenAndSize) {
  const auto ids = encoded("one two<|im_end|>");
  const int32_t largest = *std::max_element(ids.begin(), ids.end());
  expect_error(ErrorKind::Data,
               {"train.jsonl:1", fmt::format("token {}", largest), fmt::format("vocab_size = {}", largest)},
               [&] { load(R"({"text": "one two"})", {.vocab_size = largest}); });
  EXPECT_NO_THROW(load(R"({"text": "one two"})", {.vocab_size = largest + 1}));
}

TEST(Loading, IsTheSameOnAnyNumberOfThreads) {
  std::string content;
  for (int row = 0; row < 3000; ++row) content += fmt::format("{{\"text\": \"row {} of many\"}}\n", row);
  const auto one = load(content, {.num_threads = 1});
  const auto four = load(content, {.num_threads = 4});
  ASSERT_EQ(one.rows.size(), 3000u);
  for (size_t i = 0; i < one.rows.size(); ++i) {
    ASSERT_EQ(one.rows[i].ids, four.rows[i].ids) << i;
    ASSERT_EQ(four.rows[i].source_row, static_cast<int64_t>(i));
  }
  EXPECT_EQ(one.report.fingerprint, four.report.fingerprint);
  EXPECT_EQ(one.report.fingerprint.size(), 16u);
  EXPECT_NE(load("{\"text\": \"row 1 of many\"}\n").report.fingerprint, one.report.fingerprint);
}

TEST(Loading, WithoutADatasetNameIsAUsageError) {
  ThreadTeam team(1);
  expect_error(ErrorKind::Usage, {"--dataset_name"},
               [&] { (void)load_sft_dataset({}, tiny_tokenizer(), nullptr, 1000, team); });
}

TEST(SpecialTokens, TextGetsTheTokenizersOwnAndChatsOnlyTheTemplates) {
  const auto tokenizer = text::Tokenizer::from_folder(LOCKSTEP_UNPACKED_TOKENIZERS "/tiny-spbpe");
  ASSERT_TRUE(tokenizer.bos_id().has_value());
  const int32_t bos = *tokenizer.bos_id();
  const auto text_row = load(R"({"text": "one two"})", {.tokenizer = tokenizer}).rows.at(0);
  EXPECT_EQ(text_row.ids.at(0), bos);
  EXPECT_EQ(text_row.ids.back(), tokenizer.eos_id());
  const auto chat_row = load(kChat, {.tokenizer = tokenizer}).rows.at(0);
  EXPECT_EQ(chat_row.ids.at(0), bos);
  EXPECT_EQ(std::count(chat_row.ids.begin(), chat_row.ids.end(), bos), 1);
}

}  // namespace
}  // namespace lockstep::data
