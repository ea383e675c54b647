#include "lockstep/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using ::testing::HasSubstr;

TEST(Error, EachKindHasItsExitCode) {
  EXPECT_EQ(exit_code(ErrorKind::Usage), 2);
  EXPECT_EQ(exit_code(ErrorKind::Data), 3);
  EXPECT_EQ(exit_code(ErrorKind::Environment), 4);
  EXPECT_EQ(exit_code(ErrorKind::Peer), 5);
  EXPECT_EQ(exit_code(ErrorKind::Timeout), 6);
  EXPECT_EQ(exit_code(ErrorKind::NonFinite), 7);
  EXPECT_EQ(exit_code(ErrorKind::OtherBits), 8);
  EXPECT_EQ(exit_code(ErrorKind::Internal), 70);
  EXPECT_EQ(exit_code(ErrorKind::Resumable), 75);
}

TEST(Error, NamesOfKindsReadBack) {
  for (const ErrorKind kind : {ErrorKind::Usage, ErrorKind::Data, ErrorKind::Environment, ErrorKind::Peer,
                               ErrorKind::Timeout, ErrorKind::NonFinite, ErrorKind::OtherBits, ErrorKind::Internal,
                               ErrorKind::Resumable}) {
    EXPECT_EQ(error_kind_from_name(name(kind)), kind) << name(kind);
  }
  EXPECT_EQ(error_kind_from_name("no such kind"), ErrorKind::Internal);
}

TEST(Error, CarriesKindAndFormattedMessage) {
  const Error error = Error::usage("lr = {} must be above 0. Try {}.", -0.5, "2e-5");
  EXPECT_EQ(error.kind(), ErrorKind::Usage);
  EXPECT_EQ(error.exit_code(), 2);
  EXPECT_STREQ(error.what(), "lr = -0.5 must be above 0. Try 2e-5.");
}

TEST(Error, FailedCheckNamesPlaceConditionAndValues) {
  try {
    const int a = 3;
    LS_CHECK(a == 4, "a = {}", a);
    FAIL() << "LS_CHECK let a false condition pass";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Internal);
    EXPECT_THAT(error.what(), HasSubstr("error_test.cpp"));
    EXPECT_THAT(error.what(), HasSubstr("'a == 4'"));
    EXPECT_THAT(error.what(), HasSubstr("a = 3"));
  }
}

}  // namespace
}  // namespace lockstep
