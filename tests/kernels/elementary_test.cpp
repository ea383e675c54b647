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

struct WorstErrors {
  double value = 0, slope = 0;
};

/// Largest errors of an activation against float64, relative to max(|wanted|, floor).
WorstErrors activation_errors(cpu::Function function, double (*value)(double), double (*slope)(double), double floor) {
  std::vector<float> x;
  for (int i = -300'000; i <= 300'000; ++i) x.push_back(static_cast<float>(i) * 5e-5F);
  std::vector<float> y(x.size()), s(x.size());
  cpu::table().activation_f32(function, x.data(), y.data(), s.data(), static_cast<int64_t>(x.size()));
  WorstErrors worst;
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    worst.value = std::max(worst.value, std::abs(y[i] - value(at)) / std::max(std::abs(value(at)), floor));
    worst.slope = std::max(worst.slope, std::abs(s[i] - slope(at)) / std::max(std::abs(slope(at)), floor));
  }
  return worst;
}

double phi(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * 3.14159265358979323846); }
double cumulative(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

TEST(Elementary, GeluKeepsItsRelativePrecisionInTheTail) {
  const auto gelu = [](double x) { return x * cumulative(x); };
  const auto slope = [](double x) { return cumulative(x) + x * phi(x); };
  // e^(-x^2 / 2) carries the rounding of x^2 / 2, up to 48 here: 24 u x 2 halves, u = 2^-24, beside a few of its own.
  const WorstErrors far = activation_errors(cpu::Function::Gelu, gelu, slope, 1e-20);
  EXPECT_LT(far.value, 64 * 0x1p-24);
  // The slope vanishes at -0.75, where it is the difference of two terms of size 0.23 with a few roundings each: about
  // 2 u, seen against 1e-2.
  EXPECT_LT(activation_errors(cpu::Function::Gelu, gelu, slope, 1e-2).slope, 2 * 0x1p-24 / 1e-2);
}

TEST(Elementary, GeluByTanhAndTanhAreRight) {
  const auto u = [](double x) { return std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x); };
  static const auto inner = u;
  const auto gelu = [](double x) { return 0.5 * x * (1 + std::tanh(inner(x))); };
  const auto slope = [](double x) {
    const double t = std::tanh(inner(x)), du = std::sqrt(2 / 3.14159265358979323846) * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du;
  };
  const WorstErrors by_tanh = activation_errors(cpu::Function::GeluTanh, gelu, slope, 1e-2);
  // The sigmoid's argument, up to 6 where the value is above the floor, carries three roundings.
  EXPECT_LT(by_tanh.value, 32 * 0x1p-24);
  EXPECT_LT(by_tanh.slope, 128 * 0x1p-24);  // x^2 grows before the sigmoid's slope kills it
  const WorstErrors tanh = activation_errors(
      cpu::Function::Tanh, [](double x) { return std::tanh(x); },
      [](double x) { return 1 - std::tanh(x) * std::tanh(x); }, 1e-2);
  EXPECT_LT(tanh.value, 4 * 0x1p-24);
  EXPECT_LT(tanh.slope, 4 * 0x1p-24 / 1e-2);  // 1 - y^2, where y is near 1
  const WorstErrors near_zero = activation_errors(
      cpu::Function::Tanh, [](double x) { return std::tanh(x); }, [](double) { return 1.0; }, 1e-9);
  EXPECT_LT(near_zero.value, 4 * 0x1p-24);
}

TEST(Elementary, ActivationsAtTheEdges) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{-100.0F, -0.0F, 0.0F, 100.0F, std::nanf(""), kInfinity};
  std::vector<float> y(x.size()), s(x.size());
  const auto run = [&](cpu::Function function) {
    cpu::table().activation_f32(function, x.data(), y.data(), s.data(), static_cast<int64_t>(x.size()));
  };
  for (const cpu::Function function : {cpu::Function::Gelu, cpu::Function::GeluTanh, cpu::Function::Relu}) {
    run(function);
    EXPECT_EQ(y[0], 0.0F);
    EXPECT_EQ(s[0], 0.0F);
    EXPECT_EQ(y[2], 0.0F);
    EXPECT_EQ(y[3], 100.0F);
    EXPECT_EQ(s[3], 1.0F);
    EXPECT_TRUE(std::isnan(y[4]));
    EXPECT_EQ(y[5], kInfinity);
  }
  run(cpu::Function::Tanh);
  EXPECT_EQ(y[0], -1.0F);
  EXPECT_EQ(y[3], 1.0F);
  EXPECT_TRUE(std::isnan(y[4]));
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
