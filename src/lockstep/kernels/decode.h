#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/kernels/attention.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

/// What generation computes for one new token of each of several sequences. A row's result depends on that row alone:
/// neither the number of sequences nor the team can be seen in it. Sums are in float32 (float64), bound by memory.
/// Letters: B sequences, I inputs, O outputs, N query heads, K key/value heads, D head width.
namespace lockstep::kernels {

/// y_BO = x_BI w^T + b; w is [O, I], or `transposed` [I, O]. x and w have one dtype, b_O is float32 (float64) or undefined.
at::Tensor row_product(const at::Tensor& x_BI, const at::Tensor& w, const at::Tensor& b_O, bool transposed, ThreadTeam& team);

/// The first `length` of the rows are keys and values of the sequence, the new token's last.
struct CachedTokens {
  at::Tensor k_CKD, v_CKD;
  int64_t length = 0;
};
/// Attention of each sequence's new token over its own tokens; scale, window and softcap are those of `config`.
at::Tensor token_attention(const at::Tensor& q_BND, std::span<const CachedTokens> cached, const AttentionConfig& config,
                           ThreadTeam& team);

}  // namespace lockstep::kernels
