#include "lockstep/optim/adamw.h"

#include "optim/values.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace lockstep::optim {
namespace {

using tensor::ExactPath;

struct State {
  std::vector<float> master, exp_avg, exp_avg_sq;

  explicit State(size_t count) : master(random_values(count, 1, 1)), exp_avg(count, 0), exp_avg_sq(count, 0) {}
  void step(const std::vector<float>& grad, const AdamWStep& options, ExactPath path = tensor::best_exact_path()) {
    adamw_step(master, exp_avg, exp_avg_sq, grad, options, path);
  }
};

at::Tensor tensor_of(std::vector<float>& values) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size())}).clone();
}

double largest_relative_difference(const std::vector<float>& got, const at::Tensor& want) {
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double reference = want.const_data_ptr<float>()[i];
    largest = std::max(largest, std::abs(got[i] - reference) / (std::abs(reference) + 1e-30));
  }
  return largest;
}

double largest_difference(const std::vector<float>& got, const at::Tensor& want) {
  double largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(double{got[i]} - double{want.const_data_ptr<float>()[i]}));
  }
  return largest;
}

TEST(AdamW, FollowsTorchsFusedAdamWForHundredSteps) {
  constexpr size_t kCount = 5003;
  State ours(kCount);
  at::Tensor param = tensor_of(ours.master);
  at::Tensor exp_avg = at::zeros({kCount}), exp_avg_sq = at::zeros({kCount}), step_count = at::zeros({});
  for (int64_t step = 1; step <= 100; ++step) {
    std::vector<float> grad = random_values(kCount, 100 + static_cast<uint64_t>(step), 0.1F);
    AdamWStep options{.learning_rate = 2e-3 / static_cast<double>(step), .weight_decay = 0.1, .step = step};
    step_count.fill_(static_cast<double>(step));
    at::_fused_adamw_(at::TensorList(param), at::TensorList(std::vector<at::Tensor>{tensor_of(grad)}),
                      at::TensorList(exp_avg), at::TensorList(exp_avg_sq), {}, at::TensorList(step_count),
                      options.learning_rate, options.beta1, options.beta2, options.weight_decay, options.epsilon,
                      /*amsgrad=*/false, /*maximize=*/false);
    ours.step(grad, options);
  }
  // Both round every operation to float32 (unit 2^-24) but torch may fuse some and order others: a few units per
  // step and element, and the moments forget.
  constexpr double kUnit = 0x1p-24;
  EXPECT_LE(largest_relative_difference(ours.exp_avg_sq, exp_avg_sq), 100 * kUnit);
  EXPECT_LE(largest_difference(ours.master, param), 100 * kUnit);         // weights are below 1
  EXPECT_LE(largest_difference(ours.exp_avg, exp_avg), 0.1 * 20 * kUnit);  // moments are below 0.1
}

TEST(AdamW, EqualsTheFormulaInDouble) {
  constexpr size_t kCount = 257;
  State state(kCount);
  std::vector<double> p(state.master.begin(), state.master.end()), m(kCount, 0), v(kCount, 0);
  for (int64_t step = 1; step <= 5; ++step) {
    const std::vector<float> grad = random_values(kCount, static_cast<uint64_t>(step), 3);
    const AdamWStep o{.learning_rate = 1e-2, .beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.3,
                      .step = step, .grad_scale = 0.25};
    state.step(grad, o);
    const double bias1 = 1 - std::pow(o.beta1, step), bias2 = 1 - std::pow(o.beta2, step);
    for (size_t i = 0; i < kCount; ++i) {
      const double g = grad[i] * o.grad_scale;
      m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
      v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
      p[i] = p[i] * (1 - o.learning_rate * o.weight_decay) -
             o.learning_rate / bias1 * m[i] / (std::sqrt(v[i]) / std::sqrt(bias2) + o.epsilon);
    }
  }
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(state.exp_avg[i], m[i], 20 * 0x1p-24);
    EXPECT_NEAR(state.exp_avg_sq[i], v[i], 30 * 0x1p-24 * v[i]);
    EXPECT_NEAR(state.master[i], p[i], 20 * 0x1p-24);
  }
}

TEST(AdamW, TakesAFirstStepOfTheLearningRate) {
  std::vector<float> master{1, 1, 1}, exp_avg(3, 0), exp_avg_sq(3, 0);
  const std::vector<float> grad{5, -1e-3F, 0};
  adamw_step(master, exp_avg, exp_avg_sq, grad, {.learning_rate = 0.125});
  EXPECT_NEAR(master[0], 0.875, 1e-6);
  EXPECT_NEAR(master[1], 1.125, 1e-5);
  EXPECT_EQ(master[2], 1);
}

TEST(AdamW, GivesTheSameBitsOnEveryPathAndForEveryCut) {
  constexpr size_t kCount = 4096 + 37;
  State whole(kCount);
  std::vector<State> on_path(paths().size(), whole);
  State in_parts = whole;
  for (int64_t step = 1; step <= 10; ++step) {
    const float size = step % 2 == 0 ? 1e-20F : 1e3F;
    const std::vector<float> grad = random_values(kCount, 40 + static_cast<uint64_t>(step), size);
    const AdamWStep options{.learning_rate = 1e-3, .weight_decay = 0.01, .step = step, .grad_scale = 0.3};
    whole.step(grad, options);
    for (size_t path = 0; path < on_path.size(); ++path) {
      on_path[path].step(grad, options, paths()[path]);
    }
    for (size_t begin = 0; begin < kCount; begin += 97) {
      const size_t count = std::min<size_t>(97, kCount - begin);
      adamw_step({in_parts.master.data() + begin, count}, {in_parts.exp_avg.data() + begin, count},
                 {in_parts.exp_avg_sq.data() + begin, count}, {grad.data() + begin, count}, options);
    }
  }
  on_path.push_back(in_parts);
  for (const State& other : on_path) {
    EXPECT_TRUE(same_bits(other.master, whole.master));
    EXPECT_TRUE(same_bits(other.exp_avg, whole.exp_avg));
    EXPECT_TRUE(same_bits(other.exp_avg_sq, whole.exp_avg_sq));
  }
}

TEST(ClipScale, IsTorchsClipCoefficient) {
  EXPECT_EQ(clip_scale(0.5, 1), 1);
  EXPECT_EQ(clip_scale(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_scale(1, 1), 1 / (1 + 1e-6));
  EXPECT_EQ(clip_scale(100, 0), 1);
  EXPECT_EQ(clip_scale(std::numeric_limits<double>::infinity(), 1), 0);
  EXPECT_TRUE(std::isnan(clip_scale(std::numeric_limits<double>::quiet_NaN(), 1)));
}

TEST(SumOfSquares, GivesTheSameBitsOnEveryPath) {
  for (const size_t count : {0, 1, 15, 16, 17, 4095, 4096}) {
    const std::vector<float> values = random_values(count, 7 + count, 1e3F);
    const double plain = sum_of_squares(values, ExactPath::Plain);
    double want = 0;
    for (const float value : values) {
      want += static_cast<double>(value) * static_cast<double>(value);
    }
    EXPECT_NEAR(plain, want, want * static_cast<double>(count) * 0x1p-53);
    for (const ExactPath path : paths()) {
      EXPECT_EQ(std::bit_cast<uint64_t>(sum_of_squares(values, path)), std::bit_cast<uint64_t>(plain)) << count;
    }
  }
}

TEST(SumOfSquares, HasTheDocumentedLanes) {
  // Lane 0 holds 2^100 + 1 (the 1 is lost), lane 1 holds 1 + 1: another order would give other bits.
  std::vector<float> values(18, 0);
  values[0] = 0x1p50F;
  values[1] = values[16] = values[17] = 1;
  EXPECT_EQ(sum_of_squares(values), 0x1p100);
  values[0] = 0x1p26F;  // 2^52 + 1 in lane 0, exactly
  EXPECT_EQ(sum_of_squares(values), 0x1p52 + 3);
}

}  // namespace
}  // namespace lockstep::optim
