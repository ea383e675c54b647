// Which rows are accepted, and what is said of those that are not.
#include "data_pipeline/loading.h"

namespace lockstep::data {
namespace {

using testing::expect_error;
using testing::load;
using testing::LoadWith;

constexpr const char* kHiHo =
    R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]})";

struct BadRow {
  const char* content;
  std::vector<std::string> words;
};

TEST(Rows, AreRefusedWithTheirPlaceTheirColumnsAndARemedy) {
  const std::string good = std::string(kHiHo) + "\n";
  const std::vector<BadRow> cases{
      {R"({"question": "a", "answer": "b"})",
       {"train.jsonl:1", "question, answer", "messages", "--dataset_text_field"}},
      {R"({"messages": null, "id": 3})", {"train.jsonl:1", "the value of messages is null", "found: id"}},
      {R"({"text": null})", {"train.jsonl:1", "the value of text is null", "found: none", "remove this row"}},
      {R"({"prompt": null, "completion": "b"})", {"train.jsonl:1", "the value of prompt is null", "found: completion"}},
      {R"({"prompt": null, "completion": null})", {"the value of prompt and of completion is null"}},
      {R"({"prompt": "a"})", {"train.jsonl:1", "found: prompt", "prompt and completion"}},
      {R"({"conversations": []})", {"train.jsonl:1", "conversations is an empty list"}},
      {R"({"conversations": [{"from": "human", "value": "a"}, {"from": "gpt"}]})",
       {"train.jsonl:1: message 2 of conversations has no value (found: from)", "from (user, assistant"}},
      {R"({"conversations": [{"from": "human", "value": "a"}, {"role": "user", "content": "b"}]})",
       {"message 2 of conversations has no from (found: role, content)"}},
      {R"({"conversations": [{"from": "human", "value": 3}]})", {"message 1 of conversations: value is of type integer"}},
      {R"({"conversations": [{"from": "human", "value": "a"}, 7]})", {"message 2 of conversations is of type integer"}},
      {R"({"prompt": "a", "chosen": "b", "rejected": "c"})", {"chosen", "rename chosen to completion"}},
      {R"({"input_ids": "1 2"})", {"train.jsonl:1", "input_ids", "array"}},
      {R"({"input_ids": [1, 2.5]})", {"train.jsonl:1", "input_ids", "list of integers"}},
      {R"({"input_ids": [1, -2]})", {"train.jsonl:1: input_ids holds -2"}},
      {R"({"input_ids": [1, 99999999999]})", {"input_ids holds 99999999999"}},
      {R"({"input_ids": [1, 2], "labels": [1]})", {"labels has 1 items and input_ids 2"}},
      {R"({"input_ids": [1, 2], "labels": [2, -100]})", {"item 1 of labels is 2", "the token of input_ids there (1)"}},
      {R"({"input_ids": [1, 2], "assistant_masks": [0]})", {"assistant_masks has 1 items"}},
      {R"({"input_ids": [1, 2000000]})", {"token 2000000", "outside the model's vocabulary"}},
      {R"({"text": "a", "videos": ["x.mp4"]})", {"videos", "Remove the column"}},
      {R"({"text": "a", "image": "x.png"})", {"image", "Remove the column"}},
      {R"({"prompt": "a", "completion": []})",
       {"train.jsonl:1", "prompt is of type string", "completion of type array"}},
      {R"({"text": 7})", {"train.jsonl:1", "text", "string"}},
      {R"({"messages": "Hi"})", {"train.jsonl:1", "messages", "string"}},
      {R"({"messages": []})", {"train.jsonl:1", "messages is an empty list"}},
      {R"({"messages": ["Hi"]})", {"message 1 of messages", "string"}},
      {R"({"messages": [{"from": "human", "value": "Hi"}]})", {"message 1 of messages", "no role", "from, value"}},
      {R"({"messages": [{"role": "user"}]})", {"message 1 of messages", "no content"}},
      {R"({"messages": [{"role": "user", "content": 3}]})", {"content is of type integer"}},
      {R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})", {"part 1 of content", "Images"}},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": 3})", {"train.jsonl:1", "tools", "list"}},
      {R"({"messages": [{"role": "user", "content": "a"}], "tools": "[{"})", {"train.jsonl:1", "tools"}},
      {R"({"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": []})", {"chat_template_kwargs"}},
      {"{\"text\": \"a\"", {"train.jsonl:1"}},
      {"[1, 2]", {"train.jsonl, item 1"}},
      {"\"text\"", {"train.jsonl:1"}},
      {"", {"no rows", "--dataset_name"}},
      {"\n\n", {"no rows"}},
  };
  for (const BadRow& bad : cases) {
    SCOPED_TRACE(bad.content);
    expect_error(ErrorKind::Data, bad.words, [&] { load(bad.content); });
  }
}

TEST(Rows, OfAnotherKindThanTheFirstAreAnErrorThatNamesBoth) {
  expect_error(ErrorKind::Data, {"train.jsonl:3", "kind text", "kind messages", "train.jsonl:1"},
               [] { load(std::string(kHiHo) + "\n\n" + R"({"text": "a"})"); });
  expect_error(ErrorKind::Data, {"train.jsonl:2", "columns: text; null: messages"},
               [] { load(std::string(kHiHo) + "\n" + R"({"text": "a", "messages": null})"); });
}

TEST(Rows, OfTwoFormatsOfChatsOrTokensInOneFileAreAnErrorToo) {
  const std::string sharegpt = R"({"conversations": [{"from": "user", "value": "Hi"}, {"from": "assistant", "value": "Ho"}]})";
  expect_error(ErrorKind::Data, {"train.jsonl:2", "kind messages", "kind conversations (from, value)", "train.jsonl:1"},
               [&] { load(sharegpt + "\n" + kHiHo); });
  expect_error(ErrorKind::Data, {"train.jsonl:2", "kind token ids", "kind messages"},
               [] { load(std::string(kHiHo) + "\n" + R"({"input_ids": [1, 2]})"); });
}

TEST(Rows, OfSeveralFaultyOnesTheFirstIsReported) {
  std::string content;
  for (int row = 1; row <= 200; ++row) {
    content += row == 57 || row == 58 || row == 130 ? "{\"text\": 3}\n" : "{\"text\": \"abc\"}\n";
  }
  content += "{broken\n";
  for (int trial = 0; trial < 5; ++trial) {
    expect_error(ErrorKind::Data, {"train.jsonl:57:"}, [&] { load(content, {.num_threads = 4}); });
  }
}

TEST(Rows, ABrokenLineAfterGoodOnesIsReported) {
  expect_error(ErrorKind::Data, {"train.jsonl:2"}, [] { load("{\"text\": \"abc\"}\n{broken\n"); });
}

TEST(Rows, WithTheSameKeyTwiceAreCountedAndTakenAsPythonTakesThem) {
  const auto twice = load("{\"text\": \"ab\"}\n{\"text\": \"xy\", \"text\": \"cd\"}\n{\"text\": \"cd\", \"text\": \"cd\"}\n");
  EXPECT_EQ(twice.report.num_repeated_keys, 2);
  EXPECT_TRUE(twice.report.first_repeated_key.ends_with("train.jsonl:2")) << twice.report.first_repeated_key;
  EXPECT_EQ(twice.rows[1].ids, twice.rows[2].ids);
  const auto lines = report_lines(twice.report);
  EXPECT_TRUE(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("twice in 2 rows; the last value holds, as in Python") != std::string::npos;
  }));
}

TEST(Rows, ColumnsThatAreNotUsedAreReportedOnceByName) {
  const auto dataset = load("{\"text\": \"ab cd\", \"id\": 1, \"prompt\": \"x\"}\n"
                            "{\"text\": \"ab cd\", \"id\": 2, \"source\": \"y\"}\n");
  EXPECT_EQ(dataset.report.ignored_columns, (std::vector<std::string>{"id", "prompt", "source"}));
  EXPECT_EQ(dataset.report.kind, "text");
}

TEST(Rows, MayBeItemsOfOneArray) {
  const auto dataset = load(std::string("[") + kHiHo + ",\n" + kHiHo + "]");
  EXPECT_EQ(dataset.report.num_rows, 2);
  EXPECT_EQ(dataset.report.kind, "messages");
  EXPECT_EQ(dataset.rows[0].ids, dataset.rows[1].ids);
}

TEST(Rows, ToolsAndTemplateKwargsReachTheTemplate) {
  const LoadWith with{
      .chat_template = "{{ messages[0]['content'] }}|{{ tools[0]['name'] if tools else 'none' }}|{{ mode }}"};
  const auto texts = [&](const std::string& more) {
    const auto row = load(R"({"messages": [{"role": "user", "content": "Hi"}])" + more + "}", with).rows.at(0);
    return with.tokenizer.decode(row.ids, false);
  };
  EXPECT_EQ(texts(R"(, "tools": [{"name": "add"}], "chat_template_kwargs": {"mode": "fast"})"), "Hi|add|fast");
  EXPECT_EQ(texts(R"(, "tools": "[{\"name\": \"add\"}]", "chat_template_kwargs": {"mode": 2})"), "Hi|add|2");
  EXPECT_EQ(texts(R"(, "tools": [], "chat_template_kwargs": {"mode": 2})"), "Hi|none|2");
}

TEST(Rows, ATemplateThatRefusesIsReportedWithThePlace) {
  expect_error(ErrorKind::Data, {"train.jsonl:2", "roles must alternate"}, [] {
    load(std::string(kHiHo) + "\n" + R"({"messages": [{"role": "assistant", "content": "Ho"}]})",
         {.chat_template = "{% if messages[0]['role'] != 'user' %}"
                           "{{ raise_exception('roles must alternate') }}{% endif %}"
                           "{{ messages[0]['content'] }} there"});
  });
}

TEST(Rows, ChatsWithoutATemplateAreAnError) {
  expect_error(ErrorKind::Data, {"no chat template", "--chat_template_path"},
               [] { load(kHiHo, {.chat_template = std::nullopt}); });
}

}  // namespace
}  // namespace lockstep::data
