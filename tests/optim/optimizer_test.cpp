#include "lockstep/optim/optimizer.h"

#include "optim/values.h"

#include "lockstep/optim/adamw.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

namespace lockstep::optim {
namespace {

using tensor::ExactPath;

/// A master with the states that a rule wants.
struct Elements {
  std::vector<float> master;
  std::vector<std::vector<float>> states;

  Elements(const OptimizerRule& rule, size_t count)
      : master(random_values(count, 1, 1)), states(state_names(rule, true).size(), std::vector<float>(count, 0)) {}

  void step(const OptimizerStep& step, const std::vector<float>& grad, size_t begin, size_t count,
            ExactPath path = tensor::best_exact_path()) {
    std::vector<std::span<float>> spans;
    for (std::vector<float>& state : states) spans.push_back(std::span(state).subspan(begin, count));
    step_elements(step, std::span(master).subspan(begin, count), spans, std::span(grad).subspan(begin, count), path);
  }
};

const std::vector<OptimizerRule>& elementwise_rules() {
  static const std::vector<OptimizerRule> rules = {
      AdamWRule{},
      SgdRule{},
      SgdRule{.momentum = 0.9, .dampening = 0.1},
      SgdRule{.momentum = 0.9, .nesterov = true},
      AdagradRule{.lr_decay = 0.1},
      RmsPropRule{},
      RmsPropRule{.momentum = 0.9},
      RmsPropRule{.epsilon = 1e-4, .centered = true},
      RmsPropRule{.epsilon = 1e-4, .momentum = 0.9, .centered = true},
      LionRule{},
  };
  return rules;
}

TEST(Optimizer, GivesTheSameBitsOnEveryPathAndForEveryCut) {
  constexpr size_t kCount = 4096 + 37;
  for (const OptimizerRule& rule : elementwise_rules()) {
    Elements whole(rule, kCount);
    const Elements start = whole;
    std::vector<Elements> on_path(paths().size(), whole);
    Elements in_parts = whole;
    for (int64_t number = 1; number <= 6; ++number) {
      const std::vector<float> grad = random_values(kCount, 40 + static_cast<uint64_t>(number), 10);
      const OptimizerStep step{.rule = rule, .learning_rate = 1e-3, .weight_decay = 0.01, .step = number,
                               .grad_scale = 0.3};
      whole.step(step, grad, 0, kCount);
      for (size_t path = 0; path < on_path.size(); ++path) on_path[path].step(step, grad, 0, kCount, paths()[path]);
      for (size_t begin = 0; begin < kCount; begin += 97) {
        in_parts.step(step, grad, begin, std::min<size_t>(97, kCount - begin));
      }
    }
    EXPECT_FALSE(same_bits(whole.master, start.master)) << optimizer_name(rule);
    on_path.push_back(in_parts);
    for (const Elements& other : on_path) {
      EXPECT_TRUE(same_bits(other.master, whole.master)) << optimizer_name(rule);
      for (size_t i = 0; i < whole.states.size(); ++i) {
        EXPECT_TRUE(same_bits(other.states[i], whole.states[i])) << optimizer_name(rule) << " state " << i;
      }
    }
  }
}

TEST(Optimizer, AdamWIsAdamwStep) {
  constexpr size_t kCount = 100;
  const AdamWRule rule{.beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-5};
  Elements elements(rule, kCount);
  std::vector<float> master = elements.master, exp_avg(kCount, 0), exp_avg_sq(kCount, 0);
  for (int64_t number = 1; number <= 3; ++number) {
    const std::vector<float> grad = random_values(kCount, 3, 1);
    elements.step({.rule = rule, .learning_rate = 0.01, .weight_decay = 0.1, .step = number, .grad_scale = 0.5}, grad, 0,
                  kCount);
    adamw_step(master, exp_avg, exp_avg_sq, grad,
               {.learning_rate = 0.01, .beta1 = 0.8, .beta2 = 0.9, .epsilon = 1e-5, .weight_decay = 0.1,
                .step = number, .grad_scale = 0.5});
  }
  EXPECT_TRUE(same_bits(elements.master, master));
  EXPECT_TRUE(same_bits(elements.states[0], exp_avg));
  EXPECT_TRUE(same_bits(elements.states[1], exp_avg_sq));
}

/// Program 2 of the paper, in double. torch has no Lion.
TEST(Lion, FollowsThePaper) {
  constexpr size_t kCount = 300;
  const LionRule rule{.beta1 = 0.9, .beta2 = 0.99};
  Elements elements(rule, kCount);
  std::vector<double> p(elements.master.begin(), elements.master.end()), m(kCount, 0);
  constexpr double kRate = 0x1p-7, kDecay = 0.25, kScale = 0.5;
  for (int64_t number = 1; number <= 20; ++number) {
    std::vector<float> grad = random_values(kCount, 100 + static_cast<uint64_t>(number), 1);
    if (number == 1) grad[5] = 0;  // sign(0) = 0
    elements.step({.rule = rule, .learning_rate = kRate, .weight_decay = kDecay, .step = number, .grad_scale = kScale},
                  grad, 0, kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const double g = grad[i] * kScale, direction = rule.beta1 * m[i] + (1 - rule.beta1) * g;
      // Near zero the sign is a matter of rounding: follow the float.
      if (std::abs(direction) < 1e-6 && direction != 0) p[i] = elements.master[i];
      else p[i] = p[i] * (1 - kRate * kDecay) - kRate * (direction > 0 ? 1 : direction < 0 ? -1 : 0);
      m[i] = rule.beta2 * m[i] + (1 - rule.beta2) * g;
    }
    for (size_t i = 0; i < kCount; ++i) {
      // Two roundings of p per step, |p| < 1; three of m, |m| < 1.
      EXPECT_NEAR(elements.master[i], p[i], static_cast<double>(number) * 2 * 0x1p-24) << i;
      EXPECT_NEAR(elements.states[0][i], m[i], static_cast<double>(number) * 3 * 0x1p-24) << i;
    }
  }
}

TEST(Sgd, TheFirstMomentumIsTheGradientWithoutDampening) {
  std::vector<float> master{1}, buffer{0};
  const std::vector<float> grad{0.5};
  const std::vector<std::span<float>> states{buffer};
  OptimizerStep step{.rule = SgdRule{.momentum = 0.5, .dampening = 0.75}, .learning_rate = 1};
  step_elements(step, master, states, grad);
  EXPECT_EQ(buffer[0], 0.5F);
  EXPECT_EQ(master[0], 0.5F);
  step.step = 2;
  step_elements(step, master, states, grad);
  EXPECT_EQ(buffer[0], 0.375F);
  EXPECT_EQ(master[0], 0.125F);
}

}  // namespace
}  // namespace lockstep::optim
