#pragma once

#include "lockstep/model/config.h"
#include "lockstep/tensor/grad_sink.h"
#include "lockstep/tensor/param_store.h"

#include <ATen/core/Tensor.h>

/// The norms of decoders behind one face: a family has one of three kinds everywhere. Letters: R rows, N width.
namespace lockstep::model {

struct Norm {
  tensor::ParamId weight = -1, bias = -1;  ///< bias: LayerNorm alone
  NormKind kind = NormKind::Rms;
  double eps = 1e-6;
};

/// What the backward pass needs beside x.
struct NormState {
  at::Tensor rstd_R;
  at::Tensor mean_R;                       ///< LayerNorm alone
};
struct Normed {
  at::Tensor y_RN;
  NormState state;
};

Normed norm_forward(const tensor::ParamStore& params, const Norm& norm, const at::Tensor& x_RN, at::ScalarType dtype);
/// x_RN += delta_RN (any dtype), then the norm of the new x, in one pass.
Normed add_norm_forward(const tensor::ParamStore& params, const Norm& norm, at::Tensor& x_RN, const at::Tensor& delta_RN,
                        at::ScalarType dtype);
/// The same bits as the forward's y.
at::Tensor norm_apply(const tensor::ParamStore& params, const Norm& norm, const at::Tensor& x_RN, const NormState& state,
                      at::ScalarType dtype);
/// dx is added to dx_RN; gradients of the weights go to the sink. dy_RN may be overwritten.
void norm_backward(const tensor::ParamStore& params, const Norm& norm, at::Tensor dy_RN, const at::Tensor& x_RN,
                   const NormState& state, at::Tensor& dx_RN, tensor::GradSink& sink);

}  // namespace lockstep::model
