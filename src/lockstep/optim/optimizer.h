#pragma once

#include "lockstep/optim/rule.h"
#include "lockstep/tensor/exact.h"

#include <cstdint>
#include <span>

/// One optimizer step on a span of elements, in float32, for every rule but Adafactor (adafactor.h). No value depends on
/// a neighbour, so shard boundaries cannot be seen. `path` chooses instructions, never bits: IEEE operations, nothing
/// fused. Scalars are computed in double and rounded once. Unlike torch.optim, a state begins as zeros everywhere.
/// With g the gradient times grad_scale, p the master, and for SGD, Adagrad and RMSprop g += weight_decay * p:
///
///   AdamW    see adamw.h
///   SGD      b = momentum * b + (1 - dampening) * g, in the first step b = g;
///            p -= lr * b, with nesterov p -= lr * (g + momentum * b), without momentum p -= lr * g
///   Adagrad  s += g * g;  p -= lr / (1 + (step - 1) * lr_decay) * g / (sqrt(s) + eps)
///            (Duchi, Hazan and Singer, "Adaptive subgradient methods", 2011)
///   RMSprop  v = alpha * v + (1 - alpha) * g * g;  d = sqrt(v) + eps, centered: a += (g - a) * (1 - alpha) and
///            d = sqrt(v - a * a) + eps;  p -= lr * g / d, with momentum b = momentum * b + g / d and p -= lr * b
///            (Tieleman and Hinton, 2012)
///   Lion     p *= 1 - lr * weight_decay;  p -= lr * sign(beta1 * m + (1 - beta1) * g);  m = beta2 * m + (1 - beta2) * g
///            (Chen et al., "Symbolic discovery of optimization algorithms", 2023)
namespace lockstep::optim {

struct OptimizerStep {
  OptimizerRule rule = AdamWRule{};
  double learning_rate = 0;
  double weight_decay = 0;
  int64_t step = 1;          ///< 1 for the first update
  double grad_scale = 1;     ///< multiplies every gradient first (clipping)
};

/// Updates master and states in place; all spans have one length. `states` are in the order of state_names().
void step_elements(const OptimizerStep& step, std::span<float> master, std::span<const std::span<float>> states,
                   std::span<const float> grad, tensor::ExactPath path = tensor::best_exact_path());

}  // namespace lockstep::optim
