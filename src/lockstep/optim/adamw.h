#pragma once

#include "lockstep/tensor/exact.h"

#include <cstdint>
#include <span>

/// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019) as torch.optim.AdamW computes it,
/// elementwise in float32. No value depends on a neighbour, so shard boundaries cannot be seen. `path` chooses
/// instructions, never bits: every operation is IEEE float32, nothing is fused.
namespace lockstep::optim {

struct AdamWStep {
  double learning_rate = 0;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;
  int64_t step = 1;          ///< 1 for the first update
  double grad_scale = 1;     ///< multiplies every gradient first (clipping)
};

/// Updates master, exp_avg and exp_avg_sq in place; all spans have one length. With g the scaled gradient:
///   p *= 1 - lr * weight_decay;  m += (g - m) * (1 - beta1);  v = v * beta2 + (1 - beta2) * g * g
///   p -= lr / (1 - beta1^step) * m / (sqrt(v) / sqrt(1 - beta2^step) + epsilon)
/// The scalars are computed in double and rounded once to float, as torch does.
void adamw_step(std::span<float> master, std::span<float> exp_avg, std::span<float> exp_avg_sq,
                std::span<const float> grad, const AdamWStep& step,
                tensor::ExactPath path = tensor::best_exact_path());

/// min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_; 1 when max_norm is 0 (no clipping).
/// NaN when the norm is NaN, 0 when it is infinite.
double clip_scale(double norm, double max_norm);

/// Sum of squares of one piece (at most 4,096 elements) in double with 16 fixed lanes: depends on the values alone.
double sum_of_squares(std::span<const float> piece, tensor::ExactPath path = tensor::best_exact_path());

}  // namespace lockstep::optim
