#include "lockstep/kernels/cpu/table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace lockstep::kernels {
namespace {

/// |got - wanted| in units of the float spacing at `wanted`.
double ulps(float got, double wanted) {
  const auto nearest = static_cast<float>(wanted);
  const double spacing = static_cast<double>(std::nextafter(std::abs(nearest), INFINITY)) - std::abs(nearest);
  return std::abs(got - wanted) / spacing;
}

double worst_ulps(void (*function)(const float*, float*, int64_t), double (*reference)(double), float from, float to) {
  std::vector<float> x;
  for (int i = 0; i <= 200'000; ++i) x.push_back(from + (to - from) * static_cast<float>(i) / 200'000);
  std::vector<float> y(x.size());
  function(x.data(), y.data(), static_cast<int64_t>(x.size()));
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) worst = std::max(worst, ulps(y[i], reference(x[i])));
  return worst;
}

TEST(Elementary, ExpIsWithinOneUlp) {
  EXPECT_LT(worst_ulps(cpu::table().exp_f32, [](double x) { return std::exp(x); }, -87.3F, 0.0F), 1.0);
  EXPECT_LT(worst_ulps(cpu::table().exp_f32, [](double x) { return std::exp(x); }, -1.0F, 1.0F), 1.0);
  EXPECT_LT(worst_ulps(cpu::table().exp_f32, [](double x) { return std::exp(x); }, 0.0F, 88.0F), 1.0);
}

TEST(Elementary, SigmoidIsWithinThreeUlps) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_LT(worst_ulps(cpu::table().sigmoid_f32, sigmoid, -87.0F, 0.0F), 3.0);
  EXPECT_LT(worst_ulps(cpu::table().sigmoid_f32, sigmoid, -4.0F, 30.0F), 3.0);
}

TEST(Elementary, LogIsCorrectlyRoundedButForTies) {
  EXPECT_LT(worst_ulps(cpu::table().log_f32, [](double x) { return std::log(x); }, 1e-3F, 3.0F), 0.5001);
  EXPECT_LT(worst_ulps(cpu::table().log_f32, [](double x) { return std::log(x); }, 1.0F, 1e6F), 0.5001);
}

TEST(Elementary, EdgesBehave) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{-kInfinity, -200.0F, -87.4F, 0.0F, kInfinity, std::nanf("")};
  std::vector<float> y(x.size());
  cpu::table().exp_f32(x.data(), y.data(), static_cast<int64_t>(x.size()));
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_EQ(y[1], 0.0F);
  EXPECT_EQ(y[2], 0.0F);
  EXPECT_EQ(y[3], 1.0F);
  EXPECT_GT(y[4], 1e38F);
  EXPECT_TRUE(std::isnan(y[5]));
  cpu::table().sigmoid_f32(x.data(), y.data(), static_cast<int64_t>(x.size()));
  EXPECT_EQ(y[0], 0.0F);
  EXPECT_EQ(y[3], 0.5F);
  EXPECT_EQ(y[4], 1.0F);
  EXPECT_TRUE(std::isnan(y[5]));
  const std::vector<float> z{0.0F, -1.0F, 1.0F, kInfinity};
  cpu::table().log_f32(z.data(), y.data(), static_cast<int64_t>(z.size()));
  EXPECT_EQ(y[0], -kInfinity);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(y[2], 0.0F);
  EXPECT_EQ(y[3], kInfinity);
}

}  // namespace
}  // namespace lockstep::kernels
