#include "lockstep/text/json_lines.h"

#include <gtest/gtest.h>

#include "lockstep/base/files.h"
#include "text/expect_error.h"

namespace lockstep::text {
namespace {

class JsonLinesTest : public testing::Test {
 protected:
  fs::path file(std::string_view content, const char* name = "rows.jsonl") const {
    write_file_atomically(folder_.path() / name, content);
    return folder_.path() / name;
  }
  std::vector<JsonRow> rows(std::string_view content) const {
    JsonLines reader(file(content));
    std::vector<JsonRow> all;
    while (auto row = reader.next()) all.push_back(*std::move(row));
    return all;
  }
  std::string where(int64_t line) const {
    return (folder_.path() / "rows.jsonl").string() + ":" + std::to_string(line);
  }

  TempFolder folder_{"lockstep-json-"};
};

TEST_F(JsonLinesTest, RowsComeWithTheirLineNumbers) {
  const auto all = rows("{\"text\": \"a\"}\n\n  \n{\"text\": \"\u4e16\"}");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].where(), where(1));
  EXPECT_EQ(all[1].where(), where(4));
  EXPECT_EQ(all[1].string("text"), "\u4e16");
}

TEST_F(JsonLinesTest, AByteOrderMarkAndWindowsLineEndsAreFine) {
  const auto all = rows("\xEF\xBB\xBF{\"text\": \"a\"}\r\n\r\n{\"text\": \"b\"}\r\n");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].string("text"), "a");
  EXPECT_EQ(all[1].number, 3);
}

TEST_F(JsonLinesTest, AFileMayBeOneArray) {
  const auto all = rows("\n [{\"text\": \"a\"},\n  {\"text\": \"b\"}]\n");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[1].string("text"), "b");
  EXPECT_EQ(all[1].where(), (folder_.path() / "rows.jsonl").string() + ", item 2");
}

TEST_F(JsonLinesTest, OfAKeyThatComesTwiceTheLastValueHoldsAndIsTold) {
  const auto all = rows(R"({"text": "a", "id": 1, "text": "b"})" "\n" R"({"text": "a: {\"text\": 1}", "m": [{"text": 1}]})"
                        "\n" R"({"m": [{"x": 1, "x": 2}]})");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].string("text"), "b");
  EXPECT_EQ(all[0].value.fields(), (std::vector<std::string>{"text", "id"}));
  EXPECT_TRUE(all[0].repeats_a_key());
  EXPECT_FALSE(all[1].repeats_a_key());
  EXPECT_TRUE(all[2].repeats_a_key());
}

TEST_F(JsonLinesTest, EmptyFilesHaveNoRows) {
  EXPECT_TRUE(rows("").empty());
  EXPECT_TRUE(rows("\xEF\xBB\xBF").empty());
  EXPECT_TRUE(rows("\n\r\n \n").empty());
  EXPECT_TRUE(rows("[]").empty());
}

TEST_F(JsonLinesTest, AMalformedLineIsNamedAndReadingMayGoOn) {
  JsonLines reader(file("{\"text\": \"a\"}\n{\"text\": }\n{\"text\": \"b\"}\n"));
  EXPECT_TRUE(reader.next());
  expect_error(ErrorKind::Data, {where(2), "column 10", "Correct or remove"}, [&] { reader.next(); });
  EXPECT_EQ(reader.next()->string("text"), "b");
  EXPECT_FALSE(reader.next());
}

TEST_F(JsonLinesTest, WhatIsNoJsonObjectIsRefused) {
  const struct {
    std::string content;
    std::string words;
  } cases[] = {{"3\n", "got: integer"},
               {"\"text\"\n", "got: string"},
               {"{\"a\": 1} {\"b\": 2}\n", "not valid JSON"},
               {"{\n  \"text\": \"a\"\n}\n", "not valid JSON"},
               {"{\"text\": \"\xff\"}\n", "UTF-8"},
               {"{\"text\": NaN}\n", "not valid JSON"},
               {std::string("{\"a\": ") + std::string(200, '[') + std::string(200, ']') + "}\n", "deeper than 128"}};
  for (const auto& item : cases) expect_error(ErrorKind::Data, {where(1), item.words}, [&] { rows(item.content); });
  expect_error(ErrorKind::Data, {"item 2", "got: integer"}, [&] { rows("[{}, 3]"); });
  expect_error(ErrorKind::Data, {"rows.jsonl", "not valid JSON", "line 2"}, [&] { rows("[{},\n{]"); });
  expect_error(ErrorKind::Data, {"/no/such/file"}, [] { JsonLines("/no/such/file"); });
}

TEST_F(JsonLinesTest, FieldsAreAskedForByKind) {
  const JsonRow row = rows(
      R"({"text": "a", "n": null, "messages": [{"role": "user", "content": "Hi"}], "k": {"b": 1, "a": 2}})")[0];
  EXPECT_TRUE(row.has("text"));
  EXPECT_FALSE(row.has("n")) << "null counts as absent";
  EXPECT_FALSE(row.has("other"));
  EXPECT_EQ(row.array("messages").json(), R"([{"role":"user","content":"Hi"}])");
  EXPECT_EQ(row.at("k").json(), R"({"b":1,"a":2})") << "keys keep their order";
  expect_error(ErrorKind::Data, {where(1), "no field \"prompt\"", "text, n, messages, k"},
               [&] { row.string("prompt"); });
  expect_error(ErrorKind::Data, {where(1), "\"k\" must be a string", "object"}, [&] { row.string("k"); });
  expect_error(ErrorKind::Data, {where(1), "\"text\" must be an array"}, [&] { row.array("text"); });
}

TEST(JsonValue, ValuesOutliveTheirDocument) {
  const JsonValue item = JsonValue::parse(R"({"a": [1, "x"]})", "here").find("a").value()[1];
  EXPECT_EQ(item.as_string(), "x");
}

TEST(JsonValue, KindsAndAccessors) {
  const JsonValue value = JsonValue::parse(R"([null, true, -3, 2.5, "s", [], {"k": 1}, 18446744073709551615])", "here");
  const JsonKind kinds[] = {JsonKind::Null,   JsonKind::Boolean, JsonKind::Integer, JsonKind::Real,
                            JsonKind::String, JsonKind::Array,   JsonKind::Object,  JsonKind::Integer};
  ASSERT_EQ(value.size(), std::size(kinds));
  for (size_t i = 0; i < value.size(); ++i) EXPECT_EQ(value[i].kind(), kinds[i]) << name(kinds[i]);
  EXPECT_TRUE(value[1].as_boolean());
  EXPECT_EQ(value[2].as_integer(), -3);
  EXPECT_EQ(value[2].as_number(), -3.0);
  EXPECT_EQ(value[3].as_number(), 2.5);
  EXPECT_EQ(value[6].fields(), std::vector<std::string>{"k"});
  EXPECT_FALSE(value[4].find("k"));
  expect_error(ErrorKind::Data, {"expected a 64-bit integer", "18446744073709551615"}, [&] { value[7].as_integer(); });
  expect_error(ErrorKind::Data, {"expected a string", "number 2.5"}, [&] { value[3].as_string(); });
  expect_error(ErrorKind::Data, {"item 8 of an array of 8"}, [&] { value[8]; });
  expect_error(ErrorKind::Data, {"there: not valid JSON"}, [] { JsonValue::parse("", "there"); });
}

}  // namespace
}  // namespace lockstep::text
