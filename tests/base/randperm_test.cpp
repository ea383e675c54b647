#include "lockstep/base/randperm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/files.h"

namespace lockstep {
namespace {

TEST(TorchRandperm, GivesTheOrderOfARealTrainingRun) {
  const auto golden = nlohmann::json::parse(
      read_file(std::filesystem::path(LOCKSTEP_TEST_DATA) / "golden" / "sft-smollm2-gsm8k-fp32.json"));
  const auto expected = golden.at("randperm_first_32").get<std::vector<int64_t>>();
  ASSERT_EQ(expected.size(), 32U);
  std::vector<int64_t> order = torch_randperm(1319, 42);
  order.resize(expected.size());
  EXPECT_EQ(order, expected);
}

TEST(TorchRandperm, IsAPermutation) {
  for (const int64_t n : {0, 1, 2, 3, 1000}) {
    std::vector<int64_t> order = torch_randperm(n, 7);
    ASSERT_EQ(order.size(), static_cast<size_t>(n));
    std::sort(order.begin(), order.end());
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(TorchRandperm, DependsOnTheSeed) { EXPECT_NE(torch_randperm(100, 1), torch_randperm(100, 2)); }

}  // namespace
}  // namespace lockstep
