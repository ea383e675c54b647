#include "lockstep/options/json.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "options/example_options.h"

namespace lockstep::options {
namespace {

TEST(Json, ComesBackAsItWasWithOrigins) {
  const Example written({"--rate", "0.1", "--share", "0.30000000000000004", "--length", "none", "--names", "a b", "c",
                         "--layers", "q", "--maybe_switch", "--count", "9007199254740993", "--name", "x\"\n"});
  ASSERT_EQ(written.all_problems(), "");
  const std::string text = dump_json(written.fields, written.resolved.origins, "example");

  Example read({});
  const Origins origins = load_json(text, read.fields, "example", "options.json");
  EXPECT_EQ(origins, written.resolved.origins);
  EXPECT_EQ(read.options.rate, 0.1);
  EXPECT_EQ(read.options.share, 0.30000000000000004);
  EXPECT_EQ(read.options.length, std::nullopt);
  EXPECT_EQ(read.options.count, 9007199254740993);
  EXPECT_EQ(read.options.names, (std::vector<std::string>{"a b", "c"}));
  EXPECT_EQ(read.options.maybe, true);
  EXPECT_EQ(read.options.name, "x\"\n");
  EXPECT_EQ(dump_json(read.fields, origins, "example"), text);
}

TEST(Json, AnOptionNewerThanTheFileKeepsItsDefault) {
  const Example written({"--rate", "0.25", "--count", "3"});
  nlohmann::ordered_json all = nlohmann::ordered_json::parse(dump_json(written.fields, written.resolved.origins, "example"));
  ASSERT_EQ(all["options"].erase("count"), 1U);
  Example read({});
  const int64_t usual = read.options.count;
  const Origins origins = load_json(all.dump(), read.fields, "example", "options.json");
  EXPECT_EQ(read.options.rate, 0.25);
  EXPECT_EQ(read.options.count, usual);
  EXPECT_NE(usual, 3);
  EXPECT_EQ(origin_of(origins, "count"), Origin{});
}

TEST(Json, OriginsOfFilesKeepTheirLines) {
  const Origin origin{.kind = Origin::Kind::File, .file = "a:b/run.yaml", .line = 14};
  EXPECT_EQ(origin.text(), "a:b/run.yaml:14");
  EXPECT_EQ(Origin::from_text("a:b/run.yaml:14"), origin);
  EXPECT_EQ(Origin::from_text("default"), Origin{});
}

TEST(Json, NeverHoldsASecret) {
  const Example example({"--token", "hunter2"});
  EXPECT_EQ(dump_json(example.fields, example.resolved.origins, "example").find("hunter2"), std::string::npos);
}

std::string thrown_by(std::string_view text) {
  const Example example({});
  try {
    load_json(text, example.fields, "example", "options.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data);
    EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos) << error.what();
    return error.what();
  }
  return "nothing";
}

TEST(Json, RefusesWhatThisVersionDidNotWrite) {
  EXPECT_TRUE(thrown_by("{").starts_with("options.json: is no JSON."));
  EXPECT_TRUE(thrown_by("[]").starts_with("options.json: is no JSON object."));
  EXPECT_TRUE(thrown_by("{}").starts_with("options.json: has no 'command'."));
  EXPECT_TRUE(thrown_by(R"({"command": "other", "options": {}})").starts_with("options.json: has options of \"other\", not of"));
  EXPECT_TRUE(thrown_by(R"({"command": "example"})").starts_with("options.json: has no 'options'."));
  EXPECT_TRUE(thrown_by(R"({"command": "example", "options": {}})").starts_with("options.json: has an empty table of 'options'."));
  EXPECT_TRUE(thrown_by(R"({"command": "example", "options": 3})").starts_with("options.json: has 3 as 'options' instead of"));
  EXPECT_TRUE(thrown_by(R"({"command": "example", "options": {"rate": 1}})").starts_with("options.json: has no 'options.rate.value'."));
  EXPECT_TRUE(thrown_by(R"({"command": "example", "options": {"rate": {"value": "fast", "origin": "default"}}})")
                  .starts_with("options.json: has \"fast\" as 'options.rate.value', which is no value of that option."));
  const Example example({});
  std::string text = dump_json(example.fields, {}, "example");
  text.insert(text.find("\"rate\""), "\"foreign\": {},");
  EXPECT_EQ(thrown_by(text), "options.json: has an unknown option 'foreign'. It must be a file that this version of lockstep wrote; was it edited?");
}

}  // namespace
}  // namespace lockstep::options
