#include "lockstep/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

// First in this file: other tests call init(), and ctest runs each case in a process of its own.
TEST(Log, WorksBeforeInit) {
  CaptureStderr();
  log::info("base", "early {}", 1);
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("base   early 1\n"));
}

TEST(Log, LineHasTimeLevelRankComponentAndText) {
  log::init(0, log::Level::Info);
  CaptureStderr();
  log::info("train", "step={} loss={:.4f}", 120, 2.41834);
  EXPECT_THAT(GetCapturedStderr(),
              MatchesRegex("[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\.[0-9][0-9][0-9] I r00 train  step=120 loss=2.4183\n"));
}

TEST(Log, ProgramWithoutARankPrintsNone) {
  log::init(-1, log::Level::Info);
  CaptureStderr();
  log::warn("launch", "text with {{braces}} and 100 %");
  EXPECT_THAT(GetCapturedStderr(), MatchesRegex("[0-9:.]+ W launch text with \\{braces\\} and 100 %\n"));
}

TEST(Log, ReplicasPrintWarningsAndErrorsOnly) {
  log::init(3, log::Level::Debug);
  CaptureStderr();
  log::debug("x", "hidden");
  log::info("x", "hidden");
  log::warn("x", "seen");
  log::error("x", "seen too");
  const std::string text = GetCapturedStderr();
  EXPECT_THAT(text, ::testing::Not(HasSubstr("hidden")));
  EXPECT_THAT(text, HasSubstr(" W r03 x      seen\n"));
  EXPECT_THAT(text, HasSubstr(" E r03 x      seen too\n"));
}

TEST(Log, OffPrintsNothing) {
  log::init(0, log::Level::Off);
  CaptureStderr();
  log::error("x", "hidden");
  EXPECT_EQ(GetCapturedStderr(), "");
}

TEST(Log, LevelsHaveTheNamesOfTransformers) {
  EXPECT_EQ(log::level_from_name("debug"), log::Level::Debug);
  EXPECT_EQ(log::level_from_name("info"), log::Level::Info);
  EXPECT_EQ(log::level_from_name("passive"), log::Level::Info);
  EXPECT_EQ(log::level_from_name("warning"), log::Level::Warning);
  EXPECT_EQ(log::level_from_name("error"), log::Level::Error);
  EXPECT_EQ(log::level_from_name("critical"), log::Level::Error);
  try {
    log::level_from_name("loud");
    FAIL() << "an unknown level was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Usage);
    EXPECT_THAT(error.what(), HasSubstr("'loud'"));
    EXPECT_THAT(error.what(), HasSubstr("debug, info"));
  }
}

TEST(Log, LinesOfManyThreadsStayWhole) {
  log::init(0, log::Level::Info);
  CaptureStderr();
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([] {
        for (int i = 0; i < 50; ++i) log::info("t", "{}", std::string(200, 'a'));
      });
    }
  }
  std::istringstream lines(GetCapturedStderr());
  int num_lines = 0;
  for (std::string line; std::getline(lines, line); ++num_lines) {
    EXPECT_THAT(line, MatchesRegex("[0-9:.]+ I r00 t      a+"));
    EXPECT_EQ(line.size(), std::string("12:30:41.120 I r00 t      ").size() + 200);
  }
  EXPECT_EQ(num_lines, 200);
}

}  // namespace
}  // namespace lockstep
