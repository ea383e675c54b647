#include "lockstep/options/command_line.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "lockstep/options/value.h"
#include "options/example_options.h"

namespace lockstep::options {
namespace {

struct Reads {
  std::vector<std::string> args;
  std::string key;
  std::string value;
};

void PrintTo(const Reads& reads, std::ostream* out) {
  for (const std::string& arg : reads.args) *out << arg << ' ';
}

class CommandLineReads : public testing::TestWithParam<Reads> {};

TEST_P(CommandLineReads, TheValue) {
  const Example example(GetParam().args);
  ASSERT_EQ(example.all_problems(), "");
  EXPECT_EQ(to_text(find(example.fields, GetParam().key)->value()), GetParam().value);
}

INSTANTIATE_TEST_SUITE_P(
    Spellings, CommandLineReads,
    testing::Values(
        Reads{{"--rate", "3e-4"}, "rate", "0.0003"}, Reads{{"--rate=3e-4"}, "rate", "0.0003"},
        Reads{{"--rate", ".5"}, "rate", "0.5"}, Reads{{"--rate", "1"}, "rate", "1"},
        Reads{{"--rate", "+1e-3"}, "rate", "0.001"}, Reads{{"--count", "12"}, "count", "12"},
        Reads{{"--plain_switch"}, "plain_switch", "true"}, Reads{{"--plain-switch"}, "plain_switch", "true"},
        Reads{{"--plain-switch", "--rate", "1"}, "plain_switch", "true"},
        Reads{{"--plain_switch", "no", "--rate", "1"}, "plain_switch", "false"},
        Reads{{"--plain_switch=YES"}, "plain_switch", "true"}, Reads{{"--plain_switch", "T"}, "plain_switch", "true"},
        Reads{{"--plain_switch=y"}, "plain_switch", "true"}, Reads{{"--plain_switch", "1"}, "plain_switch", "true"},
        Reads{{"--on_switch", "False"}, "on_switch", "false"}, Reads{{"--on_switch=f"}, "on_switch", "false"},
        Reads{{"--on_switch", "n"}, "on_switch", "false"}, Reads{{"--on_switch=0"}, "on_switch", "false"},
        Reads{{"--no_on_switch"}, "on_switch", "false"}, Reads{{"--no-on-switch"}, "on_switch", "false"},
        Reads{{"--maybe_switch"}, "maybe_switch", "true"}, Reads{{"--maybe_switch", "none"}, "maybe_switch", "none"},
        Reads{{"--length", "none"}, "length", "none"}, Reads{{"--length=Null"}, "length", "none"},
        Reads{{"--length", "7"}, "length", "7"}, Reads{{"--share", "0.25"}, "share", "0.25"},
        Reads{{"--name", "none"}, "name", "none"}, Reads{{"--name="}, "name", ""},
        Reads{{"--name", "a=b"}, "name", "a=b"}, Reads{{"--name=a=b"}, "name", "a=b"},
        Reads{{"--name", "-1"}, "name", "-1"}, Reads{{"--name", "-a b"}, "name", "-a b"},
        Reads{{"--names", "a", "b", "c"}, "names", "a b c"}, Reads{{"--names", "a", "--rate", "1"}, "names", "a"},
        Reads{{"--names"}, "names", ""}, Reads{{"--layers", "q", "v"}, "layers", "q v"},
        Reads{{"--settings", "{\"a\": 1}"}, "settings", "{\"a\": 1}"},
        Reads{{"--rate", "1", "--rate", "0.5"}, "rate", "0.5"}, Reads{{"--maybe"}, "maybe_switch", "true"},
        Reads{{"--no_on"}, "on_switch", "false"}, Reads{{"--rat=1"}, "rate", "1"},
        Reads{{"--name", "x"}, "name", "x"}));

TEST(CommandLine, KeepsAnUnsetTextApartFromTheWordNone) {
  const Example example({"--name", "none"});
  ASSERT_TRUE(example.options.name.has_value());
  EXPECT_EQ(*example.options.name, "none");
}

TEST(CommandLine, ReadsItsOwnFlagsAnywhere) {
  const Fields none;
  Problems problems;
  const std::vector<std::string> args = {"--dry-run", "--config", "a.yaml", "--help_all", "-h"};
  const CommandLine line = read_command_line(args, none, problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_TRUE(line.dry_run);
  EXPECT_EQ(line.config, "a.yaml");
  EXPECT_EQ(line.help, Help::All);
}

struct Complains {
  std::vector<std::string> args;
  std::string problem;
};

void PrintTo(const Complains& complains, std::ostream* out) {
  for (const std::string& arg : complains.args) *out << arg << ' ';
}

class CommandLineComplains : public testing::TestWithParam<Complains> {};

TEST_P(CommandLineComplains, OnceWithTheRemedy) {
  const Example example(GetParam().args);
  EXPECT_EQ(example.problem(), GetParam().problem);
}

INSTANTIATE_TEST_SUITE_P(
    Mistakes, CommandLineComplains,
    testing::Values(
        Complains{{"--rate", "fast"}, "rate = fast (command line): must be a finite number such as 2e-5."},
        Complains{{"--rate", "nan"}, "rate = nan (command line): must be a finite number such as 2e-5."},
        Complains{{"--rate", "1e999"}, "rate = 1e999 (command line): must be a finite number such as 2e-5."},
        Complains{{"--rate", "1x"}, "rate = 1x (command line): must be a finite number such as 2e-5."},
        Complains{{"--rate="}, "rate =  (command line): must be a finite number such as 2e-5."},
        Complains{{"--count", "2.5"}, "count = 2.5 (command line): must be a whole number."},
        Complains{{"--count", "99999999999999999999"},
                  "count = 99999999999999999999 (command line): must be a whole number."},
        Complains{{"--length", "x"}, "length = x (command line): must be a whole number, or none."},
        Complains{{"--plain_switch", "maybe"}, "plain_switch = maybe (command line): must be true or false."},
        Complains{{"--maybe_switch", "on"}, "maybe_switch = on (command line): must be true or false, or none."},
        Complains{{"--rate"}, "--rate needs a value: a finite number such as 2e-5."},
        Complains{{"--rate", "--count", "3"}, "--rate needs a value: a finite number such as 2e-5."},
        Complains{{"--config"}, "--config needs a value: the path of a YAML file."},
        Complains{{"--dry_run=no"}, "--dry_run takes no value. Remove '=no'."},
        Complains{{"--no_on_switch=1"}, "--no_on_switch takes no value. Remove '=1'."},
        Complains{{"data.jsonl"}, "'data.jsonl' stands alone: every value follows a flag, as in --dataset_name FILE."},
        Complains{{"-rate", "1"}, "unknown flag -rate: flags start with two dashes. --help lists them."},
        Complains{{"--raet", "1"}, "unknown flag --raet. Did you mean --rate?"},
        Complains{{"--plain_swich=1"}, "unknown flag --plain_swich. Did you mean --plain_switch?"},
        Complains{{"--no_plain_switch"}, "unknown flag --no_plain_switch. Use --plain_switch false."},
        Complains{{"--zzzzzz"}, "unknown flag --zzzzzz. --help lists all flags."},
        Complains{{"--nam", "x"}, "--nam could be --name, --names. Write more of the name."}));

TEST(CommandLine, GathersAllMistakesBeforeItThrows) {
  const Example example({"--raet", "1", "--count", "x", "--rate", "-1"});
  EXPECT_EQ(example.resolved.problems.texts().size(), 3U);
  try {
    example.resolved.problems.throw_if_any();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("3 problems:\n  - unknown flag --raet")) << text;
    EXPECT_NE(text.find("rate = -1 (command line): must be above 0 and at most 1"), std::string::npos) << text;
  }
}

TEST(CommandLine, AskedForHelpComplainsAboutNothing) {
  const Example example({"--raet", "1", "--help"});
  EXPECT_EQ(example.resolved.help, Help::Short);
  EXPECT_TRUE(example.resolved.problems.empty());
}

}  // namespace
}  // namespace lockstep::options
