#include "lockstep/options/check.h"

#include <gtest/gtest.h>

#include "options/example_options.h"

namespace lockstep::options {
namespace {

TEST(Check, NamesValueOriginAndLimits) {
  EXPECT_EQ(Example({"--rate", "0"}).problem(),
            "rate = 0 (command line): must be above 0 and at most 1. The default is --rate 2e-05.");
  EXPECT_EQ(Example({"--rate", "1.5"}).problem(),
            "rate = 1.5 (command line): must be above 0 and at most 1. The default is --rate 2e-05.");
  EXPECT_EQ(Example({"--share", "1"}).problem(), "share = 1 (command line): must be at least 0 and below 1.");
  EXPECT_EQ(Example({"--length", "0"}).problem(),
            "length = 0 (command line): must be at least 1. The default is --length 1024.");
}

TEST(Check, TakesTheLimitsThemselvesWhereTheyBelong) {
  EXPECT_EQ(Example({"--rate", "1", "--share", "0", "--count", "1"}).all_problems(), "");
}

TEST(Check, RefusesByNameWhatOthersHave) {
  EXPECT_EQ(Example({"--word", "c"}).problem(), "word = c (command line): is not there yet. Use a or b.");
  EXPECT_EQ(Example({"--word", "z"}).problem(), "word = z (command line): must be one of a, b.");
  EXPECT_EQ(Example({"--adapters"}).problem(),
            "adapters = true (command line): adapters are not there yet. Leave it out.");
  EXPECT_EQ(Example({"--adapters", "false"}).all_problems(), "");
}

TEST(Check, HoldsTextsAgainstTheirPattern) {
  EXPECT_EQ(Example({"--inner", "y7"}).all_problems(), "");
  EXPECT_EQ(Example({"--inner", "y77"}).problem(), "inner = y77 (command line): must be x, or y and a digit.");
}

TEST(Check, FindsBrokenJson) {
  EXPECT_EQ(Example({"--settings", "{\"a\": }"}).problem(),
            "settings = {\"a\": } (command line): must be a mapping as JSON, such as '{\"key\": 1}'.");
}

TEST(Check, NamesAKeyThatJsonHasTwice) {
  EXPECT_EQ(Example({"--settings", R"({"a": 1, "b": 2, "a": 3})"}).problem(),
            R"(settings = {"a": 1, "b": 2, "a": 3} (command line): the key "a" stands in it twice. Remove one of the two.)");
  EXPECT_NE(Example({"--settings", R"({"a": [{"x": 1, "x": 1}]})"}).problem().find("the key \"x\" stands in it twice"),
            std::string::npos);
  EXPECT_EQ(Example({"--settings", R"({"a": {"x": 1}, "b": {"x": 2, "a": "a"}})"}).all_problems(), "");
  EXPECT_EQ(Example({"--settings", "settings.json"}).all_problems(), "");
}

TEST(Check, NotesWhatHasNoObjectOnceAndOnlyIfItAsksForSomething) {
  EXPECT_EQ(Example({"--loaders", "0"}).resolved.notes, Words{});
  EXPECT_EQ(Example({"--loaders", "4"}).resolved.notes,
            Words{"loaders = 4 (command line) has no effect: there are none."});
}

TEST(Check, NeverShowsASecret) {
  const Example example({"--token", "hunter2"});
  EXPECT_EQ(example.resolved.notes, Words{"token = (hidden) (command line) has no effect: nothing is sent."});
}

}  // namespace
}  // namespace lockstep::options
