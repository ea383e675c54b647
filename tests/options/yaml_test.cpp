#include "lockstep/options/yaml.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/options/value.h"
#include "options/example_options.h"

namespace lockstep::options {
namespace {

/// A run.yaml with `text`, read together with `more` words of a command line.
class WithFile {
 public:
  explicit WithFile(std::string_view text, std::vector<std::string> more = {}) : folder_("yaml_test") {
    path_ = (folder_.path() / "run.yaml").string();
    write_file_atomically(path_, text);
    std::vector<std::string> args = {"--config", path_};
    args.insert(args.end(), more.begin(), more.end());
    example_ = std::make_unique<Example>(args);
  }
  const Example& operator*() const { return *example_; }
  const Example* operator->() const { return example_.get(); }
  /// All problems, with the file's folder left out.
  std::string problems() const {
    std::string text = example_->problem();
    const std::string folder = folder_.path().string() + "/";
    for (size_t at = text.find(folder); at != std::string::npos; at = text.find(folder)) text.erase(at, folder.size());
    return text;
  }
  std::string value(std::string_view key) const { return to_text(find(example_->fields, key)->value()); }
  Origin origin(std::string_view key) const { return origin_of(example_->resolved.origins, key); }

 private:
  TempFolder folder_;
  std::string path_;
  std::unique_ptr<Example> example_;
};

struct YamlRead {
  std::string line;
  std::string key;
  std::string value;
};
void PrintTo(const YamlRead& yaml_read, std::ostream* out) { *out << yaml_read.line; }
class YamlReads : public testing::TestWithParam<YamlRead> {};

TEST_P(YamlReads, TheValue) {
  const WithFile file(GetParam().line + "\n");
  ASSERT_EQ(file.problems(), "");
  EXPECT_EQ(file.value(GetParam().key), GetParam().value);
}

INSTANTIATE_TEST_SUITE_P(
    Values, YamlReads,
    testing::Values(YamlRead{"rate: 3e-4", "rate", "0.0003"}, YamlRead{"rate: 1", "rate", "1"},
                    YamlRead{"rate: '0.5'", "rate", "0.5"}, YamlRead{"count: 12", "count", "12"},
                    YamlRead{"count: \"12\"", "count", "12"}, YamlRead{"plain_switch: true", "plain_switch", "true"},
                    YamlRead{"plain-switch: yes", "plain_switch", "true"}, YamlRead{"on_switch: off", "on_switch", "false"},
                    YamlRead{"plain_switch: ON", "plain_switch", "true"}, YamlRead{"on_switch: 0", "on_switch", "false"},
                    YamlRead{"length: null", "length", "none"}, YamlRead{"length: ~", "length", "none"},
                    YamlRead{"length:", "length", "none"}, YamlRead{"length: none", "length", "none"},
                    YamlRead{"name: 12", "name", "12"}, YamlRead{"name: yes", "name", "yes"},
                    YamlRead{"names: [a, b]", "names", "a b"}, YamlRead{"names: a", "names", "a"},
                    YamlRead{"layers: [q]", "layers", "q"}, YamlRead{"names: []", "names", ""},
                    YamlRead{"settings: {a: 1, b: [x, true, 2.5, null], c: '1'}", "settings",
                          R"({"a":1,"b":["x",true,2.5,null],"c":"1"})"},
                    YamlRead{"settings: '{\"a\": 1}'", "settings", "{\"a\": 1}"}));

struct YamlComplaint {
  std::string text;
  std::string problem;
};
void PrintTo(const YamlComplaint& complains, std::ostream* out) { *out << complains.text; }
class YamlComplains : public testing::TestWithParam<YamlComplaint> {};

TEST_P(YamlComplains, WithFileAndLine) {
  EXPECT_EQ(WithFile(GetParam().text).problems(), GetParam().problem);
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, YamlComplains,
    testing::Values(
        YamlComplaint{"# first\n\nrate: fast\n", "rate = fast (run.yaml:3): must be a finite number such as 2e-5."},
        YamlComplaint{"rate: 0.5\ncount: 2.5\n", "count = 2.5 (run.yaml:2): must be a whole number."},
        YamlComplaint{"count: null\n", "count = null (run.yaml:1): must be a whole number."},
        YamlComplaint{"count: [1, 2]\n", "count = [1,2] (run.yaml:1): must be a whole number."},
        YamlComplaint{"plain_switch: maybe\n", "plain_switch = maybe (run.yaml:1): must be true or false."},
        YamlComplaint{"names: [[a], b]\n", "names = [[\"a\"],\"b\"] (run.yaml:1): must be a list."},
        YamlComplaint{"name: {a: 1}\n", "name = {\"a\":1} (run.yaml:1): must be a text."},
        YamlComplaint{"\nraet: 1\n", "run.yaml:2: unknown option raet. Did you mean rate?"},
        YamlComplaint{"dry_run: true\n", "run.yaml:1: unknown option dry_run. --help lists all flags."},
        YamlComplaint{"rate: 1\nname: x\nrate: 0.5\n",
                  "run.yaml:3: rate stands in line 1 already. Remove one of the two."},
        YamlComplaint{"env: [a]\n",
                  "run.yaml:1: env must be a mapping from names to values, such as 'env: {HF_HOME: /data}'."},
        YamlComplaint{"env:\n  A: [1]\n", "run.yaml:2: an entry of env must be a name with one plain value."},
        YamlComplaint{"env:\n  A=B: 1\n", "run.yaml:2: 'A=B' cannot be the name of an environment variable."},
        YamlComplaint{"rate: 3\n",
                  "rate = 3 (run.yaml:1): must be above 0 and at most 1. The default is --rate 2e-05."},
        YamlComplaint{"[a, b]: 1\n", "run.yaml:1: a key must be the name of an option."},
        YamlComplaint{"settings:\n  a: 1\n  b: {c: 2}\n  a: 3\n",
                      "run.yaml:4: settings: the key a stands in line 2 already. Remove one of the two."},
        YamlComplaint{"settings:\n  b:\n  - c: 2\n    c: 3\n",
                      "run.yaml:4: settings: the key c stands in line 3 already. Remove one of the two."},
        YamlComplaint{"settings: {a: 1, ? [b] : 2}\n", "run.yaml:1: settings: a key must be a text."},
        YamlComplaint{"env:\n  A: 1\n  A: 2\n",
                      "run.yaml:3: env: the key A stands in line 2 already. Remove one of the two."},
        YamlComplaint{"settings: &a [*a]\n",
                      "run.yaml:1: settings: nested deeper than 100 levels, or an alias that holds itself. Write it flat."}));

TEST(Yaml, GoesBetweenDefaultAndCommandLine) {
  const WithFile file("rate: 0.25\ncount: 3\n", {"--count", "5"});
  EXPECT_EQ(file.value("rate"), "0.25");
  EXPECT_EQ(file.value("count"), "5");
  EXPECT_EQ(file.value("length"), "1024");
  EXPECT_EQ(file.origin("rate").kind, Origin::Kind::File);
  EXPECT_EQ(file.origin("rate").line, 1);
  EXPECT_EQ(file.origin("count").text(), "command line");
  EXPECT_EQ(file.origin("length").text(), "default");
}

TEST(Yaml, TheCommandLineWinsWhereverConfigStands) {
  const TempFolder folder("yaml_test");
  const std::string path = (folder.path() / "run.yaml").string();
  write_file_atomically(path, "count: 3\n");
  EXPECT_EQ(Example({"--count", "5", "--config", path}).options.count, 5);
}

TEST(Yaml, GivesTheEnvironmentAsPythonWouldWriteIt) {
  const WithFile file("env:\n  HF_HOME: /data\n  FLAG: true\n  TEXT: 'true'\n  N: 3\n  E:\nrate: 1\n");
  const EnvironmentVariables expected = {
      {"HF_HOME", "/data"}, {"FLAG", "True"}, {"TEXT", "true"}, {"N", "3"}, {"E", "None"}};
  EXPECT_EQ(file->resolved.environment, expected);
}

TEST(Yaml, AnEmptyFileSetsNothing) { EXPECT_TRUE(WithFile("# nothing\n")->resolved.origins.empty()); }

std::string yaml_problem(const std::string& text) {
  try {
    const WithFile file(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "nothing";
}

TEST(Yaml, StopsAtAFileThatIsNoMapping) {
  EXPECT_NE(yaml_problem("a: [1\nb: 2\n").find("run.yaml:2: this is not YAML"), std::string::npos);
  EXPECT_NE(yaml_problem("- a\n").find("run.yaml:1: the file must be a mapping"), std::string::npos);
}

TEST(Yaml, AQuoteThatIsNeverClosedIsNamedWhereItOpens) {
  struct Open {
    const char* text;
    int line;
  };
  for (const Open& open : {
           Open{"name: \"x\n", 1}, Open{"name: 'x\n", 1}, Open{"name: \"x", 1}, Open{"count: 1\nname: 'x\nrate: 1\n", 2},
           Open{"count: 1\nname: \"x\n\n  \n", 2}, Open{"names: [a, \"b]\n", 1}, Open{"count: 1\n\"name: x\n", 2},
           Open{"settings: {\n  a: 'b\n}\n", 2}, Open{"name: 'x\r\n", 1}, Open{"name: 'it''s\n", 1},
           Open{"name: \"x\\\"\n", 1},
       }) {
    const std::string problem = yaml_problem(open.text);
    EXPECT_NE(problem.find(fmt::format("run.yaml:{}: the quote that opens here is never closed", open.line)),
              std::string::npos) << open.text << ": " << problem;
  }
  for (const char* closed : {"name: \"x\"\n", "name: it's\n", "name: 'a\n  b'\n", "name: \"x # y\" # it's\n", "name: |\n  it's\n\n"}) {
    EXPECT_EQ(yaml_problem(closed), "nothing") << closed;
  }
}

TEST(Yaml, AMissingFileIsAUsageErrorThatNamesTheFlag) {
  try {
    const Example example({"--config", "no/such.yaml"});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_NE(std::string(error.what()).find("--config no/such.yaml"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::options
