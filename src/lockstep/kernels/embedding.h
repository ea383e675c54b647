#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>

namespace lockstep::kernels {

/// x_TH (in `out_dtype`) = rows token_T (int32) of w_VH. The backward pass is GradSink::add_rows.
/// Ids outside [0, V) are Error{Internal}: data/ checks the vocabulary.
at::Tensor embedding_forward(const at::Tensor& token_T, const at::Tensor& w_VH, at::ScalarType out_dtype);

/// A table and the row that each token takes from it (int32 [T]).
struct EmbeddingRows {
  at::Tensor row_T;
  at::Tensor w_RH;
};
/// x_TH in float32 (float64) = the sum of one row of each table, added in the order given: words, token types and
/// positions of an encoder. Rows outside a table are Error{Internal}.
at::Tensor embedding_sum_forward(std::initializer_list<EmbeddingRows> tables);

}  // namespace lockstep::kernels
