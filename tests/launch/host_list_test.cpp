#include "lockstep/launch/host_list.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using Names = std::vector<std::string>;

Names parse(std::string_view text) { return parse_host_list(text, "SLURM_STEP_NODELIST"); }

std::string refused_list(std::string_view text, const HostListLimits& limits = {}) {
  try {
    parse_host_list(text, "LIST", limits);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    return error.what();
  }
  return "no error";
}

TEST(HostList, PlainNames) {
  EXPECT_EQ(parse(""), Names{});
  EXPECT_EQ(parse("login"), Names{"login"});
  EXPECT_EQ(parse("a,b.example.org,c-1_x"), (Names{"a", "b.example.org", "c-1_x"}));
  EXPECT_EQ(parse("n1,n0,n1"), (Names{"n1", "n0", "n1"}));
}

TEST(HostList, RangesKeepOrderAndLeadingZeros) {
  EXPECT_EQ(parse("n[0-3]"), (Names{"n0", "n1", "n2", "n3"}));
  EXPECT_EQ(parse("n[3,1,2]"), (Names{"n3", "n1", "n2"}));
  EXPECT_EQ(parse("n[09-11]"), (Names{"n09", "n10", "n11"}));
  EXPECT_EQ(parse("n[9-11]"), (Names{"n9", "n10", "n11"}));
  EXPECT_EQ(parse("n[9-011]"), (Names{"n9", "n10", "n11"}));
  EXPECT_EQ(parse("linux[0000-0002,1023]"), (Names{"linux0000", "linux0001", "linux0002", "linux1023"}));
  EXPECT_EQ(parse("n[007]"), Names{"n007"});
  EXPECT_EQ(parse("[1-2]"), (Names{"1", "2"}));
  EXPECT_EQ(parse("n[999999999999999998-999999999999999999]"), (Names{"n999999999999999998", "n999999999999999999"}));
}

TEST(HostList, SeveralGroupsMultiplyInScontrolsOrder) {
  EXPECT_EQ(parse("rack[0-1]_blade[7,9]"), (Names{"rack0_blade7", "rack0_blade9", "rack1_blade7", "rack1_blade9"}));
  EXPECT_EQ(parse("a[1-2][3-4]"), (Names{"a13", "a14", "a23", "a24"}));
  EXPECT_EQ(parse("a[0-1]b[2-3]c[4-5],x"),
            (Names{"a0b2c4", "a0b2c5", "a1b2c4", "a1b2c5", "a0b3c4", "a0b3c5", "a1b3c4", "a1b3c5", "x"}));
  EXPECT_EQ(parse("a[1-2]-ib,b[3].x"), (Names{"a1-ib", "a2-ib", "b3.x"}));
}

TEST(HostList, AStarRepeatsTheItem) {
  EXPECT_EQ(parse("host*3,x"), (Names{"host", "host", "host", "x"}));
  EXPECT_EQ(parse("n[0-1]*2"), (Names{"n0", "n0", "n1", "n1"}));
}

TEST(HostList, RefusalsNameTheCharacterAndTheProblem) {
  struct Case {
    const char* text;
    int character;
    const char* problem;
  };
  for (const Case& c : {Case{"a,,b", 3, "a name is missing"},
                        {",a", 1, "a name is missing"},
                        {"a,", 2, "a name must follow the comma"},
                        {"a[", 2, "the bracket is not closed"},
                        {"a[1", 2, "the bracket is not closed"},
                        {"a[1-", 2, "the bracket is not closed"},
                        {"a[1,", 2, "the bracket is not closed"},
                        {"a[]", 3, "a number is missing before ']'"},
                        {"a[1,]", 5, "a number is missing before ']'"},
                        {"a[1,,2]", 5, "a number is missing before ','"},
                        {"a[-1]", 3, "a number is missing before '-'"},
                        {"a[1-]", 5, "a number is missing before ']'"},
                        {"a[x-z]", 3, "a number is missing before 'x'"},
                        {"a[ 1]", 3, "a number is missing before the byte 32"},
                        {"a[1-2-3]", 6, "'-' stands where"},
                        {"a[0000x1333]", 7, "'x' stands where"},
                        {"a[[1]]", 3, "a number is missing before '['"},
                        {"a[2-1]", 3, "from 2 down to 1"},
                        {"a[0000000000000000001]", 3, "more than 18 digits"},
                        {"a]1", 2, "']' cannot be part"},
                        {"a[1]]", 5, "']' cannot be part"},
                        {"a b", 2, "the byte 32 cannot be part"},
                        {"a(x2)", 2, "'(' cannot be part"},
                        {"a\nb", 2, "the byte 10 cannot be part"},
                        {"\xc3\xa9", 1, "the byte 195 cannot be part"},
                        {"(null)", 1, "'(' cannot be part"},
                        {"*2", 1, "a name is missing before '*'"},
                        {"a*", 2, "'*' must be followed"},
                        {"a*0", 2, "'*' must be followed"},
                        {"a*x", 2, "'*' must be followed"},
                        {"a*2b", 2, "'*' must be followed"},
                        {"a*9999999999999999999999", 2, "'*' must be followed"}}) {
    const std::string message = refused_list(c.text);
    EXPECT_NE(message.find(fmt::format("character {}: ", c.character)), std::string::npos) << c.text << ": " << message;
    EXPECT_NE(message.find(c.problem), std::string::npos) << c.text << ": " << message;
    EXPECT_EQ(message.find("LIST="), 0U) << message;
  }
}

TEST(HostList, LimitsHold) {
  EXPECT_EQ(parse("n[1-65536]").size(), 65'536U);
  EXPECT_NE(refused_list("n[0-65536]").find("more than 65536 hosts"), std::string::npos);
  EXPECT_NE(refused_list("n[0-999999999999999999]").find("more than 65536 hosts"), std::string::npos);
  EXPECT_NE(refused_list("a[0-999]b[0-999]").find("more than 65536 hosts"), std::string::npos);
  EXPECT_NE(refused_list("a*65537").find("more than 65536 hosts"), std::string::npos);
  EXPECT_NE(refused_list("a[0-60000],b[0-60000]").find("more than 65536 hosts"), std::string::npos);
  EXPECT_NE(refused_list("a,b,c", {.max_hosts = 2}).find("more than 2 hosts"), std::string::npos);
  EXPECT_NE(refused_list(std::string(256, 'x')).find("more than 255 characters"), std::string::npos);
  EXPECT_EQ(parse(std::string(255, 'x')).size(), 1U);
  EXPECT_NE(refused_list("abcdef", {.max_text = 5}).find("6 characters"), std::string::npos);
}

TEST(HostList, ALongListIsShownAroundTheMistake) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("node{},", i);
  const size_t where = text.size() + 1;
  text += "!,";
  for (int i = 0; i < 1000; ++i) text += fmt::format("node{},", i);
  const std::string message = refused_list(text);
  EXPECT_NE(message.find(fmt::format("character {}: '!'", where)), std::string::npos) << message;
  EXPECT_NE(message.find("node999,!,node0"), std::string::npos) << message;
  EXPECT_LT(message.size(), 300U);
}

}  // namespace
}  // namespace lockstep::launch
