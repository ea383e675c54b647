#include "lockstep/model/init.h"

#include "lockstep/base/philox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace lockstep::testing {
namespace {

using model::fill_normal;
using model::new_parameter;
using model::normal_quantile;

TEST(NewParameters, QuantilesInvertTheDistribution) {
  for (const double p : {0x1p-33, 1e-9, 1e-4, 0.02, 0.074, 0.0751, 0.3, 0.5, 0.7, 0.9249, 0.926, 0.999}) {
    const double x = normal_quantile(p);
    EXPECT_NEAR(0.5 * std::erfc(-x / std::sqrt(2.0)), p, 1e-14 * (1 + std::abs(x) * 100) * p) << p;
    EXPECT_NEAR(normal_quantile(1 - p), -x, 1e-7 * (1 + std::abs(x))) << "1 - p rounds for the smallest p";
  }
  EXPECT_EQ(normal_quantile(0.5), 0);
}

TEST(NewParameters, AreNormalWithTheDeviationAsked) {
  std::vector<float> values(200'000);
  fill_normal(values, 0.02, 42, "classifier.weight");
  double sum = 0, squares = 0, fourth = 0;
  for (const float v : values) {
    const double z = v / 0.02;
    sum += z;
    squares += z * z;
    fourth += z * z * z * z;
  }
  const auto n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n));
}

TEST(NewParameters, DependOnSeedAndNameAlone) {
  const auto values = [](uint64_t seed, const std::string& name, size_t count) {
    std::vector<float> out(count);
    fill_normal(out, 1, seed, name);
    return out;
  };
  const auto wanted = values(42, "classifier.weight", 64);
  EXPECT_EQ(values(42, "classifier.weight", 64), wanted);
  EXPECT_NE(values(43, "classifier.weight", 64), wanted);
  EXPECT_NE(values(42, "classifier.dense.weight", 64), wanted);
  const auto longer = values(42, "classifier.weight", 100);
  EXPECT_TRUE(std::equal(wanted.begin(), wanted.end(), longer.begin()));
  // These bits are part of a run's result and must never change.
  EXPECT_EQ(wanted[0], -0x1.fbf58cp-3F);
  EXPECT_EQ(wanted[63], 0x1.543332p-1F);
}

TEST(NewParameters, BiasesAreZeroAndNormsOne) {
  const auto all = [](const at::Tensor& x, float value) {
    return std::all_of(x.const_data_ptr<float>(), x.const_data_ptr<float>() + x.numel(), [&](float v) { return v == value; });
  };
  EXPECT_TRUE(all(new_parameter({.name = "classifier.bias", .shape = {5}}, 0.02, 1), 0));
  EXPECT_TRUE(all(new_parameter({.name = "model.norm.weight", .shape = {5}}, 0.02, 1), 1));
  const at::Tensor matrix = new_parameter({.name = "classifier.weight", .shape = {2, 3}}, 0.02, 1);
  EXPECT_EQ(matrix.scalar_type(), at::kFloat);
  EXPECT_EQ(matrix.sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_FALSE(all(matrix, 0));
}

}  // namespace
}  // namespace lockstep::testing
