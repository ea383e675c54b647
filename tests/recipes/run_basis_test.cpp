// What a run's bits come from: read from its record, and compared.
#include "lockstep/recipes/run_basis.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

namespace lockstep::recipes {
namespace {

using Names = std::vector<std::string>;
using Blocks = std::vector<size_t>;

const RunBasis kStored{.weights = {"aa", "bb"}, .kernels = {{"linear", "11"}, {"adamw", "22"}}};

TEST(RunBasis, IsReadFromTheRecord) {
  const RunBasis basis = basis_of(R"({"weights": ["aa", "bb"], "kernels": {"linear": "11", "adamw": "22"}, "run": {}})", "run.json");
  EXPECT_EQ(basis.weights, kStored.weights);
  EXPECT_EQ(basis.kernels, kStored.kernels) << "in the record's order";
  EXPECT_TRUE(basis_of(R"({"run": {}})", "run.json").weights.empty()) << "of an older version";
  for (const char* text : {"", "[1]", R"({"weights": 3})", R"({"kernels": {"linear": 1}})"}) {
    try {
      basis_of(text, "out/run.json");
      EXPECT_STREQ(text, "[1]") << "a list holds neither";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      EXPECT_EQ(std::string(error.what()).rfind("out/run.json: ", 0), 0U) << error.what();
    }
  }
}

TEST(RunBasis, KernelsAreComparedByNameAndHash) {
  EXPECT_EQ(other_kernels(kStored, kStored), Names{});
  EXPECT_EQ(other_kernels(kStored, {.weights = {}, .kernels = {{"adamw", "22"}, {"linear", "1f"}}}), Names{"linear"});
  EXPECT_EQ(other_kernels(kStored, {.weights = {}, .kernels = {{"linear", "11"}, {"gelu", "33"}}}), (Names{"adamw", "gelu"}))
      << "another build has others";
  EXPECT_EQ(other_kernels({}, kStored), Names{}) << "nothing is known";
}

TEST(RunBasis, WeightsAreComparedByBlock) {
  EXPECT_EQ(other_weights(kStored, kStored), Blocks{});
  EXPECT_EQ(other_weights(kStored, {.weights = {"aa", "b0"}, .kernels = {}}), Blocks{1});
  EXPECT_EQ(other_weights(kStored, {.weights = {"aa", "bb", "cc"}, .kernels = {}}), (Blocks{0, 1, 2})) << "another model";
  EXPECT_EQ(other_weights({}, kStored), Blocks{});
}

}  // namespace
}  // namespace lockstep::recipes
