#include "lockstep/optim/adamw.h"

#include "lockstep/base/error.h"

#include <cmath>

namespace lockstep::optim {
namespace {

using tensor::ExactPath;

struct Scalars {
  float decay, one_minus_beta1, beta2, one_minus_beta2, step_size, sqrt_bias2, epsilon, grad_scale;
};

Scalars scalars_of(const AdamWStep& step) {
  LS_CHECK(step.step >= 1, "step = {}", step.step);
  const auto steps = static_cast<double>(step.step);
  const double bias1 = 1 - std::pow(step.beta1, steps);
  const double bias2 = 1 - std::pow(step.beta2, steps);
  return {.decay = static_cast<float>(1 - step.learning_rate * step.weight_decay),
          .one_minus_beta1 = static_cast<float>(1 - step.beta1),
          .beta2 = static_cast<float>(step.beta2),
          .one_minus_beta2 = static_cast<float>(1 - step.beta2),
          .step_size = static_cast<float>(step.learning_rate / bias1),
          .sqrt_bias2 = static_cast<float>(std::sqrt(bias2)),
          .epsilon = static_cast<float>(step.epsilon),
          .grad_scale = static_cast<float>(step.grad_scale)};
}

// The bodies are written once and inlined into one function per instruction set. Addition, multiplication, division
// and square root are correctly rounded in all of them and -ffp-contract=off forbids fusing, so the bits are equal.

[[gnu::always_inline]] inline void step_body(float* __restrict master, float* __restrict exp_avg,
                                             float* __restrict exp_avg_sq, const float* __restrict grad, size_t count,
                                             const Scalars& s) {
  for (size_t i = 0; i < count; ++i) {
    const float g = grad[i] * s.grad_scale;
    const float m = exp_avg[i] + (g - exp_avg[i]) * s.one_minus_beta1;
    const float v = exp_avg_sq[i] * s.beta2 + s.one_minus_beta2 * g * g;
    const float denominator = __builtin_sqrtf(v) / s.sqrt_bias2 + s.epsilon;
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    master[i] = master[i] * s.decay - s.step_size * m / denominator;
  }
}

constexpr size_t kLanes = 16;

/// A float's square is exact in double, so only the additions round; lane l takes elements l, l + 16, ...
[[gnu::always_inline]] inline void squares_body(double* lanes, const float* values, size_t count) {
  double sums[kLanes] = {};
  const size_t whole = count - count % kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (size_t i = whole; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    sums[i - whole] += value * value;
  }
  for (size_t lane = 0; lane < kLanes; ++lane) {
    lanes[lane] = sums[lane];
  }
}

#define LOCKSTEP_ON_PATH(suffix, target)                                                                  \
  target void step_##suffix(float* master, float* exp_avg, float* exp_avg_sq, const float* grad,          \
                            size_t count, const Scalars& s) {                                             \
    step_body(master, exp_avg, exp_avg_sq, grad, count, s);                                               \
  }                                                                                                       \
  target void squares_##suffix(double* lanes, const float* values, size_t count) {                        \
    squares_body(lanes, values, count);                                                                   \
  }

LOCKSTEP_ON_PATH(plain, )
LOCKSTEP_ON_PATH(avx2, [[gnu::target("avx2")]])
LOCKSTEP_ON_PATH(avx512, [[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")]])
#undef LOCKSTEP_ON_PATH

template <class Function>
Function choose(ExactPath path, Function avx512, Function avx2, Function plain) {
  return path == ExactPath::Avx512 ? avx512 : path == ExactPath::Avx2 ? avx2 : plain;
}

}  // namespace

void adamw_step(std::span<float> master, std::span<float> exp_avg, std::span<float> exp_avg_sq,
                std::span<const float> grad, const AdamWStep& step, ExactPath path) {
  const size_t count = master.size();
  LS_CHECK(exp_avg.size() == count && exp_avg_sq.size() == count && grad.size() == count,
           "{} weights, {} and {} moments, {} gradients", count, exp_avg.size(), exp_avg_sq.size(), grad.size());
  const auto run = choose(path, &step_avx512, &step_avx2, &step_plain);
  run(master.data(), exp_avg.data(), exp_avg_sq.data(), grad.data(), count, scalars_of(step));
}

double clip_scale(double norm, double max_norm) {
  if (max_norm <= 0) {
    return 1;
  }
  const double scale = max_norm / (norm + 1e-6);
  return scale > 1 ? 1 : scale;
}

double sum_of_squares(std::span<const float> piece, ExactPath path) {
  double lanes[kLanes];
  choose(path, &squares_avx512, &squares_avx2, &squares_plain)(lanes, piece.data(), piece.size());
  for (size_t width = kLanes / 2; width >= 1; width /= 2) {
    for (size_t lane = 0; lane < width; ++lane) {
      lanes[lane] += lanes[lane + width];
    }
  }
  return lanes[0];
}

}  // namespace lockstep::optim
