#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

/// What a mixture of experts needs beside products. Letters: T tokens, E experts, R rows, W width.
namespace lockstep::kernels {

/// Probabilities of all experts, float32 (float64), from logits of any dtype.
at::Tensor router_softmax(const at::Tensor& logits_TE);
/// The gradient of the logits in `dtype`, from that of the probabilities.
at::Tensor router_softmax_backward(const at::Tensor& dprobability_TE, const at::Tensor& probability_TE, at::ScalarType dtype);

/// Indices of the `count` largest of each row, largest first; of equal ones the lower index. [T * count]
std::vector<int32_t> largest_of_rows(const at::Tensor& probability_TE, int64_t count);

/// x_RW[r] *= scale_R[r], in place, rounded once; scale_R is float32 (float64).
void scale_rows(at::Tensor& x_RW, const at::Tensor& scale_R);
/// Dot products of rows of a and b, float32 (float64).
at::Tensor row_dots(const at::Tensor& a_RW, const at::Tensor& b_RW);
/// out_TW[rows[r]] += x_RW[r]; out is float32 (float64), rows int64.
void add_rows_into(at::Tensor& out_TW, const at::Tensor& rows, const at::Tensor& x_RW);

}  // namespace lockstep::kernels
