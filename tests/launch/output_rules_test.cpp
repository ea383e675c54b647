#include "lockstep/launch/output_rules.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using enum Streams;

TEST(ParseStreams, ReadsTorchrunsGrammar) {
  struct Case {
    const char* text;
    std::optional<std::vector<Streams>> expected;
  };
  for (const Case& c : {
           Case{"0", {{None, None}}}, Case{"3", {{Both, Both}}}, Case{"0:3,1:2", {{Both, Err}}},
           Case{"1:1", {{None, Out}}},
           Case{"0:1,0:2", {{Err, None}}}, Case{"12:3", {{None, None}}}, Case{"4", {}}, Case{"", {}}, Case{"33", {}},
           Case{"0:", {}}, Case{":3", {}}, Case{"0:3,", {}}, Case{"a:3", {}}, Case{"0:3 ,1:3", {}}, Case{"-1:3", {}},
       }) {
    EXPECT_EQ(parse_streams(c.text, 2), c.expected) << c.text;
  }
  EXPECT_EQ((*parse_streams("11:2", 12))[11], Err);
}

TEST(IdleEntries, AreThoseThatNothingComesOf) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(idle_entries("0:1,7:2", 3), Texts{"7:2"});
  EXPECT_EQ(idle_entries("0:1,0:2,1:3", 2), Texts{"0:1"});
  EXPECT_EQ(idle_entries("3:1,3:2", 3), (Texts{"3:1", "3:2"}));
  EXPECT_EQ(idle_entries("3", 3), Texts{});
  EXPECT_EQ(idle_entries("0:1,1:2", 2), Texts{});
  EXPECT_EQ(idle_entries("x", 2), Texts{}) << "refused by parse_streams()";
}

TEST(ParseFilters, TreatsTwoCommasAsOne) {
  EXPECT_EQ(parse_filters("apple,orange"), (std::vector<std::string>{"apple", "orange"}));
  EXPECT_EQ(parse_filters("a,,b,c"), (std::vector<std::string>{"a,b", "c"}));
  EXPECT_TRUE(parse_filters("").empty());
}

TEST(Route, FollowsTheRules) {
  const StreamRoute inherit = {};
  const StreamRoute null = {.target = StreamTarget::Null};
  const StreamRoute file = {.target = StreamTarget::Pipe, .to_file = true};
  const StreamRoute both = {.target = StreamTarget::Pipe, .to_file = true, .to_console = true};
  OutputRules rules;
  EXPECT_EQ(route(rules, 0, Stream::Out), inherit);
  rules.redirects = {Out, None};
  rules.tee = {Err, None};
  EXPECT_EQ(route(rules, 0, Stream::Out), file);
  EXPECT_EQ(route(rules, 0, Stream::Err), both);
  EXPECT_EQ(route(rules, 1, Stream::Err), inherit);
  EXPECT_EQ(route(rules, 7, Stream::Err), inherit);
  // A filtered rank keeps its files and loses the console.
  rules.console_ranks = {1};
  EXPECT_EQ(route(rules, 0, Stream::Out), file);
  EXPECT_EQ(route(rules, 0, Stream::Err), file);
  EXPECT_EQ(route(rules, 2, Stream::Out), null);
  EXPECT_EQ(route(rules, 1, Stream::Out), inherit);
  rules.log_dir = "/dev/null";
  for (const int rank : {0, 1, 2}) EXPECT_EQ(route(rules, rank, Stream::Out), inherit);
}

TEST(LinePrefix, FillsInMacros) {
  const auto prefix = [](const std::string& text) { return line_prefix(text, "trainer", 9, 1, "n0"); };
  EXPECT_EQ(line_prefix("", "default", 4, 0, "n0"), "[default0]:");
  EXPECT_EQ(prefix("[${role_name}${local_rank}]:"), "[trainer1]:");
  EXPECT_EQ(prefix("${hostname}:${rank}: "), "n0:9: ");
  EXPECT_EQ(prefix("$rank|$local_rank|$rankle"), "9|1|$rankle");
  EXPECT_EQ(prefix("${unknown} $$ ${ $1 ${rank"), "${unknown} $ ${ $1 ${rank");
  EXPECT_EQ(prefix("cost: 5$"), "cost: 5$");
}

}  // namespace
}  // namespace lockstep::launch
