#include "lockstep/options/help.h"

#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/recipes/sft_cli.h"
#include "options/example_options.h"

namespace lockstep::options {
namespace {

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

std::string help(Help which) {
  const Example example({});
  return help_text(example.fields, "About.\n", which, Page{});
}

TEST(Help, ShowsWhatWorksByGroupWithUnitsAndDefaults) {
  const std::string text = help(Help::Short);
  EXPECT_TRUE(text.starts_with("About.\n\nFirst\n  --rate X "));
  EXPECT_TRUE(contains(text, "--count SAMPLES"));
  EXPECT_TRUE(contains(text, "A length. [1024; none: no limit]"));
  EXPECT_TRUE(contains(text, "A switch that may be unset. [as it comes]"));
  EXPECT_TRUE(contains(text, "A word. One of a, b. [a]"));
  EXPECT_TRUE(contains(text, "\nSecond\n"));
}

TEST(Help, ListsTheOtherClassesByNameAndExplainsThemOnRequest) {
  EXPECT_TRUE(contains(help(Help::Short), "\n  loaders token\n"));
  EXPECT_TRUE(contains(help(Help::Short), "\n  adapters\n"));
  EXPECT_FALSE(contains(help(Help::Short), "--inner"));
  EXPECT_TRUE(contains(help(Help::All), "Adapters. Refused: adapters are not there yet."));
  EXPECT_TRUE(contains(help(Help::All), "--inner"));
}

TEST(Help, KeepsToTheTerminalsWidth) {
  for (size_t width : {72U, 100U, 120U}) {
    const Environment environment{.page = {.width = width, .colour = false}, .cores = 1};
    const std::vector<std::string> args = {"--help_all"};
    std::istringstream lines(*recipes::parse_sft(args, environment).help);
    std::string line;
    size_t num_lines = 0;
    while (std::getline(lines, line)) {
      ++num_lines;
      const bool is_sample_row = line.starts_with("  {");
      EXPECT_TRUE(line.size() <= width || is_sample_row) << width << ": " << line;
    }
    EXPECT_GT(num_lines, 200U);
  }
}

TEST(Help, ColoursOnlyWhereAsked) {
  const Example example({});
  EXPECT_FALSE(contains(help(Help::Short), "\033"));
  EXPECT_TRUE(contains(help_text(example.fields, "", Help::Short, Page{.width = 100, .colour = true}), "\033[1mFirst"));
}

TEST(ResolvedText, ShowsWhatWasGivenFirstThenTheDefaults) {
  const Example example({"--count", "3", "--loaders", "2", "--token", "hunter2"});
  const std::string text = resolved_text(example.fields, example.resolved.origins, Page{});
  EXPECT_TRUE(text.starts_with("Given\n  count ")) << text;
  EXPECT_TRUE(contains(text, "command line"));
  EXPECT_LT(text.find("loaders"), text.find("First (defaults)"));
  EXPECT_GT(text.find("length"), text.find("First (defaults)"));
  EXPECT_FALSE(contains(text, "hunter2"));
}

}  // namespace
}  // namespace lockstep::options
