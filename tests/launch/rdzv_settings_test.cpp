#include "lockstep/launch/rdzv_settings.h"

#include "launch/run_words.h"
#include "lockstep/base/error.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

using Values = std::map<std::string, std::string>;

RdzvSettings read_conf(std::string_view text) { return read_rdzv_settings(parse_rdzv_conf(text).values); }

std::string conf_refusal(std::string_view text) {
  return usage_error([&] { read_conf(text); });
}

TEST(RdzvConf, IsTakenApart) {
  EXPECT_TRUE(parse_rdzv_conf("").values.empty());
  EXPECT_TRUE(parse_rdzv_conf("").malformed.empty());
  EXPECT_EQ(parse_rdzv_conf(" a = b c ,d=e=f,a=last").values, (Values{{"a", "last"}, {"d", "e=f"}}));
  EXPECT_EQ(parse_rdzv_conf("a,=b, c= ,,d=1").malformed, (std::vector<std::string>{"a", "=b", " c= ", ""}));
  EXPECT_EQ(parse_rdzv_conf("a,d=1").values, (Values{{"d", "1"}}));
  EXPECT_EQ(parse_rdzv_conf("a=1,b=1,a=2,a=3").repeated, (std::vector<std::string>{"a", "a"}));
  EXPECT_TRUE(parse_rdzv_conf("a=1,b=1").repeated.empty());
}

TEST(RdzvConf, TimesAreReadInSeconds) {
  const RdzvSettings settings = read_conf("join_timeout=1.5,last_call_timeout=1e8,keep_alive_interval=2");
  EXPECT_EQ(settings.join_timeout, Milliseconds(1500));
  EXPECT_EQ(settings.last_call_timeout, Milliseconds(100'000'000'000));
  EXPECT_EQ(settings.dead, Milliseconds(6000));  // torchrun's three attempts
  EXPECT_EQ(read_conf("timeout=0.001").join_timeout, Milliseconds(1));
  EXPECT_FALSE(read_conf("is_host=1").dead.has_value());
}

TEST(RdzvConf, TimesThatTheClockCannotTellAreRefused) {
  for (const char* value : {"0", "-1", "1e-9", "1.1e8", "1e300", "inf", "nan", "5s", ""}) {
    const std::string message = usage_error([&] { read_rdzv_settings({{"join_timeout", value}}); });
    EXPECT_NE(message.find(fmt::format("join_timeout={}: must be a number from 0.001 to 100000000", value)),
              std::string::npos) << message;
  }
  for (const char* conf : {"keep_alive_interval=1e8,keep_alive_max_attempt=1e8",
                           "keep_alive_interval=0.001,keep_alive_max_attempt=0.5"}) {
    EXPECT_NE(conf_refusal(conf).find("together they are"), std::string::npos) << conf;
  }
}

}  // namespace
}  // namespace lockstep::launch
