#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::kernels {

struct BinaryCrossEntropyResult {
  at::Tensor loss_DC;   ///< -y log(p) - (1 - y) log(1 - p), p = sigmoid(logit)
  at::Tensor grad_DC;   ///< (p - y) * grad_scale
};
/// Logits and labels (from 0 to 1) of D documents and C classes, all float32 or all float64; statistics in that dtype.
BinaryCrossEntropyResult binary_cross_entropy(const at::Tensor& logits_DC, const at::Tensor& labels_DC,
                                              double grad_scale);

}  // namespace lockstep::kernels
