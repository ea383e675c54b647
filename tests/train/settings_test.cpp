#include "lockstep/train/settings.h"

#include "lockstep/base/error.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

namespace lockstep::train {
namespace {

/// The message, or "" when the settings are accepted.
std::string refusal(const std::map<std::string, std::string>& changed) {
  std::map<std::string, std::string> settings = {
      {"OMP_NUM_THREADS", "1"}, {"MKL_NUM_THREADS", "1"}, {"MKL_CBWR", "AVX2,STRICT"}};
  for (const auto& [name, value] : changed) settings[name] = value;
  for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), 1);
  at::set_num_threads(1);
  try {
    require_bit_stable_settings();
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
    return error.what();
  }
}

TEST(Settings, ThoseOfTheLauncherPass) {
  EXPECT_EQ(refusal({}), "");
  EXPECT_EQ(refusal({{"MKL_CBWR", "AVX512,STRICT"}}), "");
}

TEST(Settings, AWrongOneIsNamedWithItsValue) {
  EXPECT_TRUE(refusal({{"OMP_NUM_THREADS", "4"}}).starts_with("OMP_NUM_THREADS = '4': must be 1"));
  EXPECT_TRUE(refusal({{"MKL_NUM_THREADS", ""}}).starts_with("MKL_NUM_THREADS = '': must be 1"));
  EXPECT_TRUE(refusal({{"MKL_CBWR", "AVX2"}}).starts_with("MKL_CBWR = 'AVX2': must be AVX512,STRICT or AVX2,STRICT"));
}

}  // namespace
}  // namespace lockstep::train
