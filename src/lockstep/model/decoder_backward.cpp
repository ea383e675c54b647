#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/activation.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/model/decoder.h"
#include "lockstep/model/decoder_parts.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>

#include <initializer_list>
#include <utility>

namespace lockstep::model {
namespace {

using at::Tensor;
using tensor::GradSink;
using tensor::ParamStore;

/// A sum of gradients that meet at one activation, in the residual stream's dtype: each product was rounded once.
Tensor sum_in(at::ScalarType dtype, std::initializer_list<Tensor> terms) {
  const auto* term = terms.begin();
  Tensor sum = in_dtype(*term, dtype);
  for (++term; term != terms.end(); ++term) kernels::add_into(sum, *term);
  return sum;
}

}  // namespace

void Decoder::layer_backward(const ParamStore& params, int layer, Tensor& dx_TH, const GrainInput& grain,
                             LayerSaved saved, GradSink& sink) const {
  const profile::Scope span(profile::Kind::LayerBackward, layer);
  LS_CHECK(saved.x_TH.defined(), "layer {}: backward without what its forward saves", layer);
  if (!saved.norm1.rstd_R.defined()) {
    const Tensor delta_TH = attention_delta(params, layer, saved.x_TH, grain, saved);
    saved.x_mid_TH = saved.x_TH.clone();
    gate_and_up(params, layer, saved.x_mid_TH, delta_TH, saved);
    if (config_.post_norms) mlp_delta(params, layer, grain, saved);
  }
  mlp_backward(params, layer, dx_TH, grain, saved, sink);
  attention_backward(params, layer, dx_TH, grain, saved, sink);
}

Tensor Decoder::branch_backward(const ParamStore& params, const Norm& post, const Tensor& dx_TH, const NormState& state,
                                Tensor& kept_TH, const GrainInput& grain, int layer, int place, GradSink& sink) const {
  if (post.weight < 0) {
    if (options_.residual_dropout > 0) return drop(dx_TH, compute_dtype_, grain, options_.residual_dropout, layer, place);
    return kernels::convert(dx_TH, compute_dtype_);
  }
  const Tensor dy_TH = drop(dx_TH, stream_dtype(), grain, options_.residual_dropout, layer, place);
  Tensor sum = at::zeros(dx_TH.sizes(), stream_dtype());
  norm_backward(params, post, dy_TH, kept_TH, state, sum, sink);
  kept_TH.reset();
  return kernels::convert(sum, compute_dtype_);
}

Tensor Decoder::dense_mlp_backward(const ParamStore& params, int layer, const Tensor& dout_TH, LayerSaved& saved,
                                   GradSink& sink) const {
  const Layer& ids = layer_of(layer);
  Tensor dh_TM = input_gradient(params, ids.down, dout_TH), h_TM;
  kernels::SwigluGrads d;
  if (config_.gated_mlp) {
    d = kernels::swiglu_backward(dh_TM, saved.gate_TM, saved.up_TM, gate_, &h_TM);
  } else {
    d.dup_TM = kernels::activation_backward(kernels::Activation::GeluTanh, dh_TM, saved.up_TM, &h_TM);
  }
  for (Tensor* done : {&dh_TM, &saved.gate_TM, &saved.up_TM}) done->reset();
  project_backward(ids.down, dout_TH, h_TM, sink);
  h_TM.reset();

  const Tensor y_TH = norm_apply(params, ids.norm2, saved.x_mid_TH, saved.norm2, compute_dtype_);
  if (ids.gate_up.weight >= 0) {
    const Tensor both = at::cat({d.dgate_TM, d.dup_TM}, 1);
    project_backward(ids.gate_up, both, y_TH, sink);
    return in_dtype(input_gradient(params, ids.gate_up, both), stream_dtype());
  }
  if (!config_.gated_mlp) {
    project_backward(ids.up, d.dup_TM, y_TH, sink);
    return in_dtype(input_gradient(params, ids.up, d.dup_TM), stream_dtype());
  }
  project_backward(ids.gate, d.dgate_TM, y_TH, sink);
  project_backward(ids.up, d.dup_TM, y_TH, sink);
  return sum_in(stream_dtype(), {input_gradient(params, ids.gate, d.dgate_TM), input_gradient(params, ids.up, d.dup_TM)});
}

void Decoder::mlp_backward(const ParamStore& params, int layer, Tensor& dx_TH, const GrainInput& grain, LayerSaved& saved,
                           GradSink& sink) const {
  const Layer& ids = layer_of(layer);
  const Tensor dout_TH = branch_backward(params, ids.post2, dx_TH, saved.post2, saved.branch2_TH, grain, layer,
                                         detail::kAfterMlp, sink);
  Tensor dy_TH;
  if (ids.experts.router >= 0) {
    const Tensor y_TH = norm_apply(params, ids.norm2, saved.x_mid_TH, saved.norm2, compute_dtype_);
    dy_TH = experts_backward(params, ids.experts, config_.experts, dout_TH, y_TH, saved.experts, saved.router_slope_E, sink);
    saved.experts = {};
  } else {
    dy_TH = dense_mlp_backward(params, layer, dout_TH, saved, sink);
  }
  norm_backward(params, ids.norm2, dy_TH, saved.x_mid_TH, saved.norm2, dx_TH, sink);
  saved.x_mid_TH.reset();
}

Tensor Decoder::backward_qkv(const ParamStore& params, int layer, const kernels::AttentionGrads& d, const Tensor& y_TH,
                             GradSink& sink) const {
  const Layer& ids = layer_of(layer);
  const int64_t N = config_.num_heads, K = config_.num_kv_heads, D = config_.head_dim;
  if (ids.qkv.weight >= 0) {
    const Tensor dqkv = rows_of_width(at::cat({d.dq_TND, d.dk_TKD, d.dv_TKD}, 1), (N + 2 * K) * D);
    project_backward(ids.qkv, dqkv, y_TH, sink);
    return in_dtype(input_gradient(params, ids.qkv, dqkv), stream_dtype());
  }
  const Tensor dq = rows_of_width(d.dq_TND, N * D), dk = rows_of_width(d.dk_TKD, K * D), dv = rows_of_width(d.dv_TKD, K * D);
  project_backward(ids.q, dq, y_TH, sink);
  project_backward(ids.k, dk, y_TH, sink);
  project_backward(ids.v, dv, y_TH, sink);
  return sum_in(stream_dtype(), {input_gradient(params, ids.q, dq), input_gradient(params, ids.k, dk),
                                 input_gradient(params, ids.v, dv)});
}

void Decoder::attention_backward(const ParamStore& params, int layer, Tensor& dx_TH, const GrainInput& grain,
                                 LayerSaved& saved, GradSink& sink) const {
  const Layer& ids = layer_of(layer);
  const int64_t D = config_.head_dim;
  Tensor do_TND;
  {
    const Tensor dy_TH = branch_backward(params, ids.post1, dx_TH, saved.post1, saved.branch1_TH, grain, layer,
                                         detail::kAfterAttention, sink);
    project_backward(ids.o, dy_TH, rows_of_width(saved.attention.o_TND, config_.num_heads * D), sink);
    do_TND = input_gradient(params, ids.o, dy_TH).view(saved.q_TND.sizes());
  }
  auto d = kernels::attention_backward(do_TND, saved.q_TND, saved.k_TKD, saved.v_TKD, saved.attention,
                                       grain.doc_starts, attention_config(layer, grain));
  saved.attention = {};
  for (Tensor* done : {&do_TND, &saved.q_TND, &saved.k_TKD, &saved.v_TKD}) done->reset();

  if (!config_.learned_positions) {
    const Rotary::Turn turn = rotary(layer).turn(grain);
    kernels::rope_backward(d.dq_TND, turn.row_T, turn.table);
    kernels::rope_backward(d.dk_TKD, turn.row_T, turn.table);
  }
  if (config_.qk_norm) {
    const auto through_norm = [&](Tensor& dx, Tensor& raw, const NormState& state, const Norm& norm) {
      const Tensor rows = rows_of_width(raw, D);
      Tensor sum = at::zeros(rows.sizes(), stream_dtype());
      norm_backward(params, norm, rows_of_width(dx, D), rows, state, sum, sink);
      dx = kernels::convert(sum, compute_dtype_).view(raw.sizes());
      raw.reset();
    };
    through_norm(d.dq_TND, saved.q_raw_TND, saved.q_norm, ids.q_norm);
    through_norm(d.dk_TKD, saved.k_raw_TKD, saved.k_norm, ids.k_norm);
  }
  Tensor dy_TH;
  {
    const Tensor y_TH = norm_apply(params, ids.norm1, saved.x_TH, saved.norm1, compute_dtype_);
    dy_TH = backward_qkv(params, layer, d, y_TH, sink);
  }
  norm_backward(params, ids.norm1, dy_TH, saved.x_TH, saved.norm1, dx_TH, sink);
}

}  // namespace lockstep::model
