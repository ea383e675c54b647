#pragma once

#include <ATen/core/Tensor.h>

namespace lockstep::kernels {

/// x_TH (in `out_dtype`) = rows token_T (int32) of w_VH. The backward pass is GradSink::add_rows.
/// Ids outside [0, V) are Error{Internal}: data/ checks the vocabulary.
at::Tensor embedding_forward(const at::Tensor& token_T, const at::Tensor& w_VH, at::ScalarType out_dtype);

}  // namespace lockstep::kernels
