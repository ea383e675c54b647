#pragma once

#include <ATen/core/Tensor.h>

/// Softmax cross entropy over a chunk of logits, statistics in float32 (float64), with the metrics trl logs.
/// C tokens of the chunk, V the vocabulary.
namespace lockstep::kernels {

struct CrossEntropyResult {
  at::Tensor nll_C;       ///< -log p(target), float32 (float64)
  at::Tensor entropy_C;   ///< entropy of p in nats
  at::Tensor top1_C;      ///< bool: the target is the argmax; of equal logits only the lowest index counts
};

/// Overwrites logits_CV with the gradient (p - onehot(target)) * grad_scale in its dtype.
/// `grad_scale` is 1 / (number of target tokens of the update). With compute_grad false the logits are left alone.
CrossEntropyResult cross_entropy(at::Tensor& logits_CV, const at::Tensor& target_C, double grad_scale,
                                 bool compute_grad);

}  // namespace lockstep::kernels
