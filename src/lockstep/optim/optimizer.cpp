#include "lockstep/optim/optimizer.h"

#include "lockstep/base/error.h"
#include "lockstep/optim/adamw.h"

#include <cmath>

namespace lockstep::optim {
namespace {

using tensor::ExactPath;

/// The arrays of one call; a state that the rule does not have is null.
struct Arrays {
  float* __restrict master;
  float* __restrict first;
  float* __restrict second;
  float* __restrict third;
  const float* __restrict grad;
  size_t count;
};

struct SgdScalars {
  float grad_scale, weight_decay, momentum, one_minus_dampening, rate;
};
struct AdagradScalars {
  float grad_scale, weight_decay, rate, epsilon;
};
struct RmsPropScalars {
  float grad_scale, weight_decay, rate, epsilon, alpha, one_minus_alpha, momentum;
};
struct LionScalars {
  float grad_scale, decay, rate, beta1, one_minus_beta1, beta2, one_minus_beta2;
};

// The bodies are written once and inlined into one function per instruction set, as in adamw.cpp: every operation is
// correctly rounded in all of them and -ffp-contract=off forbids fusing, so the bits are equal.

[[gnu::always_inline]] inline float decayed_grad(const Arrays& a, size_t i, float grad_scale, float weight_decay) {
  return a.grad[i] * grad_scale + weight_decay * a.master[i];
}

[[gnu::always_inline]] inline void sgd_plain_body(const Arrays& a, const SgdScalars& s) {
  for (size_t i = 0; i < a.count; ++i) a.master[i] -= s.rate * decayed_grad(a, i, s.grad_scale, s.weight_decay);
}

[[gnu::always_inline]] inline void sgd_momentum_body(const Arrays& a, const SgdScalars& s) {
  for (size_t i = 0; i < a.count; ++i) {
    const float buffer = s.momentum * a.first[i] +
                         s.one_minus_dampening * decayed_grad(a, i, s.grad_scale, s.weight_decay);
    a.first[i] = buffer;
    a.master[i] -= s.rate * buffer;
  }
}

[[gnu::always_inline]] inline void sgd_nesterov_body(const Arrays& a, const SgdScalars& s) {
  for (size_t i = 0; i < a.count; ++i) {
    const float g = decayed_grad(a, i, s.grad_scale, s.weight_decay);
    const float buffer = s.momentum * a.first[i] + s.one_minus_dampening * g;
    a.first[i] = buffer;
    a.master[i] -= s.rate * (g + s.momentum * buffer);
  }
}

[[gnu::always_inline]] inline void adagrad_body(const Arrays& a, const AdagradScalars& s) {
  for (size_t i = 0; i < a.count; ++i) {
    const float g = decayed_grad(a, i, s.grad_scale, s.weight_decay);
    const float sum = a.first[i] + g * g;
    a.first[i] = sum;
    a.master[i] -= s.rate * g / (__builtin_sqrtf(sum) + s.epsilon);
  }
}

template <bool kCentered, bool kMomentum>
[[gnu::always_inline]] inline void rmsprop_loop(const Arrays& a, float* __restrict buffer, float* __restrict mean,
                                                const RmsPropScalars& s) {
  for (size_t i = 0; i < a.count; ++i) {
    const float g = decayed_grad(a, i, s.grad_scale, s.weight_decay);
    const float square = a.first[i] * s.alpha + s.one_minus_alpha * g * g;
    a.first[i] = square;
    float variance = square;
    if constexpr (kCentered) {
      const float average = mean[i] + (g - mean[i]) * s.one_minus_alpha;
      mean[i] = average;
      variance = square - average * average;
    }
    float direction = g / (__builtin_sqrtf(variance) + s.epsilon);
    if constexpr (kMomentum) {
      direction += s.momentum * buffer[i];
      buffer[i] = direction;
    }
    a.master[i] -= s.rate * direction;
  }
}

[[gnu::always_inline]] inline void rmsprop_plain_body(const Arrays& a, const RmsPropScalars& s) {
  rmsprop_loop<false, false>(a, nullptr, nullptr, s);
}
[[gnu::always_inline]] inline void rmsprop_momentum_body(const Arrays& a, const RmsPropScalars& s) {
  rmsprop_loop<false, true>(a, a.second, nullptr, s);
}
[[gnu::always_inline]] inline void rmsprop_centered_body(const Arrays& a, const RmsPropScalars& s) {
  rmsprop_loop<true, false>(a, nullptr, a.second, s);
}
[[gnu::always_inline]] inline void rmsprop_both_body(const Arrays& a, const RmsPropScalars& s) {
  rmsprop_loop<true, true>(a, a.second, a.third, s);
}

[[gnu::always_inline]] inline void lion_body(const Arrays& a, const LionScalars& s) {
  for (size_t i = 0; i < a.count; ++i) {
    const float g = a.grad[i] * s.grad_scale;
    const float direction = s.beta1 * a.first[i] + s.one_minus_beta1 * g;
    const float up = direction > 0 ? s.rate : 0.0F;
    const float down = direction < 0 ? s.rate : 0.0F;
    a.first[i] = s.beta2 * a.first[i] + s.one_minus_beta2 * g;
    a.master[i] = a.master[i] * s.decay - (up - down);
  }
}

/// NAME(a, s, path) runs NAME_body with the path's instructions.
#define LOCKSTEP_PATHS(name, Scalars)                                                                               \
  void name##_at_plain(const Arrays& a, const Scalars& s) { name##_body(a, s); }                                    \
  [[gnu::target("avx2")]] void name##_at_avx2(const Arrays& a, const Scalars& s) { name##_body(a, s); }             \
  [[gnu::target("avx512f,avx512dq,avx512bw,avx512vl,prefer-vector-width=512")]] void name##_at_avx512(              \
      const Arrays& a, const Scalars& s) {                                                                          \
    name##_body(a, s);                                                                                              \
  }                                                                                                                 \
  void name(const Arrays& a, const Scalars& s, ExactPath path) {                                                    \
    path == ExactPath::Avx512 ? name##_at_avx512(a, s)                                                              \
    : path == ExactPath::Avx2 ? name##_at_avx2(a, s)                                                                \
                              : name##_at_plain(a, s);                                                              \
  }

LOCKSTEP_PATHS(sgd_plain, SgdScalars)
LOCKSTEP_PATHS(sgd_momentum, SgdScalars)
LOCKSTEP_PATHS(sgd_nesterov, SgdScalars)
LOCKSTEP_PATHS(adagrad, AdagradScalars)
LOCKSTEP_PATHS(rmsprop_plain, RmsPropScalars)
LOCKSTEP_PATHS(rmsprop_momentum, RmsPropScalars)
LOCKSTEP_PATHS(rmsprop_centered, RmsPropScalars)
LOCKSTEP_PATHS(rmsprop_both, RmsPropScalars)
LOCKSTEP_PATHS(lion, LionScalars)
#undef LOCKSTEP_PATHS

float rounded(double value) { return static_cast<float>(value); }

void step_with(const AdamWRule& rule, const OptimizerStep& step, const Arrays& a, ExactPath path) {
  adamw_step({a.master, a.count}, {a.first, a.count}, {a.second, a.count}, {a.grad, a.count},
             {.learning_rate = step.learning_rate,
              .beta1 = rule.beta1,
              .beta2 = rule.beta2,
              .epsilon = rule.epsilon,
              .weight_decay = step.weight_decay,
              .step = step.step,
              .grad_scale = step.grad_scale},
             path);
}

void step_with(const SgdRule& rule, const OptimizerStep& step, const Arrays& a, ExactPath path) {
  const SgdScalars s{.grad_scale = rounded(step.grad_scale),
                     .weight_decay = rounded(step.weight_decay),
                     .momentum = rounded(rule.momentum),
                     .one_minus_dampening = step.step == 1 ? 1.0F : rounded(1 - rule.dampening),
                     .rate = rounded(step.learning_rate)};
  if (rule.momentum == 0) return sgd_plain(a, s, path);
  if (rule.nesterov) return sgd_nesterov(a, s, path);
  sgd_momentum(a, s, path);
}

void step_with(const AdagradRule& rule, const OptimizerStep& step, const Arrays& a, ExactPath path) {
  const double rate = step.learning_rate / (1 + static_cast<double>(step.step - 1) * rule.lr_decay);
  adagrad(a,
          {.grad_scale = rounded(step.grad_scale),
           .weight_decay = rounded(step.weight_decay),
           .rate = rounded(rate),
           .epsilon = rounded(rule.epsilon)},
          path);
}

void step_with(const RmsPropRule& rule, const OptimizerStep& step, const Arrays& a, ExactPath path) {
  const RmsPropScalars s{.grad_scale = rounded(step.grad_scale),
                         .weight_decay = rounded(step.weight_decay),
                         .rate = rounded(step.learning_rate),
                         .epsilon = rounded(rule.epsilon),
                         .alpha = rounded(rule.alpha),
                         .one_minus_alpha = rounded(1 - rule.alpha),
                         .momentum = rounded(rule.momentum)};
  const bool momentum = rule.momentum > 0;
  if (rule.centered) return momentum ? rmsprop_both(a, s, path) : rmsprop_centered(a, s, path);
  return momentum ? rmsprop_momentum(a, s, path) : rmsprop_plain(a, s, path);
}

void step_with(const LionRule& rule, const OptimizerStep& step, const Arrays& a, ExactPath path) {
  lion(a,
       {.grad_scale = rounded(step.grad_scale),
        .decay = rounded(1 - step.learning_rate * step.weight_decay),
        .rate = rounded(step.learning_rate),
        .beta1 = rounded(rule.beta1),
        .one_minus_beta1 = rounded(1 - rule.beta1),
        .beta2 = rounded(rule.beta2),
        .one_minus_beta2 = rounded(1 - rule.beta2)},
       path);
}

[[noreturn]] void step_with(const AdafactorRule&, const OptimizerStep&, const Arrays&, ExactPath) {
  throw Error::internal("Adafactor is not elementwise: see adafactor.h");
}

}  // namespace

void step_elements(const OptimizerStep& step, std::span<float> master, std::span<const std::span<float>> states,
                   std::span<const float> grad, ExactPath path) {
  const size_t count = master.size();
  LS_CHECK(step.step >= 1, "step = {}", step.step);
  LS_CHECK(grad.size() == count, "{} weights, {} gradients", count, grad.size());
  LS_CHECK(states.size() == num_states(step.rule, true), "{} states of {}", states.size(), optimizer_name(step.rule));
  float* state[kMaxStates] = {};
  for (size_t i = 0; i < states.size(); ++i) {
    LS_CHECK(states[i].size() == count, "{} weights, {} elements of state {}", count, states[i].size(), i);
    state[i] = states[i].data();
  }
  const Arrays arrays{master.data(), state[0], state[1], state[2], grad.data(), count};
  std::visit([&](const auto& rule) { step_with(rule, step, arrays, path); }, step.rule);
}

}  // namespace lockstep::optim
