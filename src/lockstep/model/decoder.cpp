#include "lockstep/model/decoder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/kernels/norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

namespace lockstep::model {
namespace {

using at::Tensor;
using tensor::GradSink;
using tensor::ParamId;
using tensor::ParamStore;

/// A sum of gradients that meet at one activation, in the residual stream's dtype: each product was rounded once.
Tensor sum_in(at::ScalarType dtype, std::initializer_list<Tensor> terms) {
  const auto* term = terms.begin();
  Tensor sum = in_dtype(*term, dtype);
  for (++term; term != terms.end(); ++term) kernels::add_into(sum, *term);
  return sum;
}

}  // namespace

Decoder::Decoder(DecoderConfig config, int64_t max_positions, at::ScalarType compute_dtype, DecoderOptions options)
    : config_(std::move(config)), compute_dtype_(compute_dtype), options_(options) {
  const std::vector<double> frequencies = rope_inverse_frequencies(config_);
  Tensor frequencies_D2 = at::empty({static_cast<int64_t>(frequencies.size())}, at::kDouble);
  std::copy(frequencies.begin(), frequencies.end(), frequencies_D2.mutable_data_ptr<double>());
  rope_ = kernels::rope_table(frequencies_D2, max_positions, 1.0, stream_dtype());

  std::map<std::string, ParamId> ids;
  for (const tensor::ParamSpec& spec : param_specs(config_)) ids.emplace(spec.name, num_params_++);
  const auto find = [&](const std::string& name) {
    const auto it = ids.find(name);
    return it == ids.end() ? ParamId{-1} : it->second;
  };
  for (int64_t l = 0; l < config_.num_layers; ++l) {
    const auto id = [&](const char* name) { return find(fmt::format("model.layers.{}.{}", l, name)); };
    const auto linear = [&](const std::string& name) {
      return Linear{id((name + ".weight").c_str()), id((name + ".bias").c_str())};
    };
    layers_.push_back({.q = linear("self_attn.q_proj"),
                       .k = linear("self_attn.k_proj"),
                       .v = linear("self_attn.v_proj"),
                       .o = linear("self_attn.o_proj"),
                       .gate = linear("mlp.gate_proj"),
                       .up = linear("mlp.up_proj"),
                       .down = linear("mlp.down_proj"),
                       .norm1 = id("input_layernorm.weight"),
                       .norm2 = id("post_attention_layernorm.weight"),
                       .q_norm = id("self_attn.q_norm.weight"),
                       .k_norm = id("self_attn.k_norm.weight")});
  }
  embed_id_ = find("model.embed_tokens.weight");
  final_norm_id_ = find("model.norm.weight");
  head_weight_id_ = config_.num_labels > 0        ? find("score.weight")
                    : config_.tie_word_embeddings ? embed_id_
                                                  : find("lm_head.weight");
}

at::ScalarType Decoder::stream_dtype() const { return compute_dtype_ == at::kDouble ? at::kDouble : at::kFloat; }

Tensor Decoder::embed_forward(const ParamStore& params, const GrainInput& grain) const {
  const profile::Scope span(profile::Kind::EmbeddingForward);
  return kernels::embedding_forward(grain.token_T, params.weight(embed_id_), stream_dtype());
}

void Decoder::embed_backward(const ParamStore&, const GrainInput& grain, const Tensor& dx_TH, GradSink& sink) const {
  const profile::Scope span(profile::Kind::EmbeddingBackward);
  const auto* token_T = grain.token_T.const_data_ptr<int32_t>();
  std::vector<int64_t> trained;  // positions; the padding token's row gets no gradient from here (config.h)
  for (int64_t t = 0; t < grain.num_tokens(); ++t)
    if (token_T[t] != config_.pad_token_id) trained.push_back(t);
  const auto R = static_cast<int64_t>(trained.size());
  if (R == grain.num_tokens()) {
    sink.add_rows(embed_id_, grain.token_T.to(at::kLong), dx_TH);
    return;
  }
  Tensor position_R = at::empty({R}, at::kLong), token_R = at::empty({R}, at::kLong);
  for (int64_t r = 0; r < R; ++r) {
    const int64_t t = position_R.mutable_data_ptr<int64_t>()[r] = trained[static_cast<size_t>(r)];
    token_R.mutable_data_ptr<int64_t>()[r] = token_T[t];
  }
  sink.add_rows(embed_id_, token_R, kernels::gather_rows(dx_TH, position_R));
}

// ---- forward ---------------------------------------------------------------

kernels::AttentionConfig Decoder::attention_config(int layer, const GrainInput& grain) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(config_.head_dim)),
          .dropout = {.probability = options_.attention_dropout,
                      .seed = options_.seed,
                      .module = static_cast<uint32_t>(layer),
                      .ordinals = grain.ordinals}};
}

Tensor Decoder::attention_delta(const ParamStore& params, int layer, const Tensor& x_TH, const GrainInput& grain,
                                LayerSaved& saved) const {
  const Layer& ids = layers_[static_cast<size_t>(layer)];
  const int64_t T = x_TH.size(0), N = config_.num_heads, K = config_.num_kv_heads, D = config_.head_dim;

  auto norm1 = kernels::rms_norm_forward(x_TH, params.weight(ids.norm1), config_.rms_norm_eps, compute_dtype_);
  saved.rstd1_T = norm1.rstd_R;
  saved.q_TND = project(params, ids.q, norm1.y_RN).view({T, N, D});
  saved.k_TKD = project(params, ids.k, norm1.y_RN).view({T, K, D});
  saved.v_TKD = project(params, ids.v, norm1.y_RN).view({T, K, D});
  norm1 = {};

  if (config_.qk_norm) {
    const auto normed = [&](Tensor& x, Tensor& raw, Tensor& rstd, ParamId weight) {
      raw = x;
      auto norm = kernels::rms_norm_forward(rows_of_width(raw, D), params.weight(weight), config_.rms_norm_eps,
                                            compute_dtype_);
      rstd = norm.rstd_R;
      x = norm.y_RN.view(raw.sizes());
    };
    normed(saved.q_TND, saved.q_raw_TND, saved.q_rstd, ids.q_norm);
    normed(saved.k_TKD, saved.k_raw_TKD, saved.k_rstd, ids.k_norm);
  }
  kernels::rope_forward(saved.q_TND, grain.position_T, rope_);
  kernels::rope_forward(saved.k_TKD, grain.position_T, rope_);
  saved.attention = kernels::attention_forward(saved.q_TND, saved.k_TKD, saved.v_TKD, grain.doc_starts,
                                               attention_config(layer, grain));
  return project(params, ids.o, rows_of_width(saved.attention.o_TND, N * D));
}

void Decoder::gate_and_up(const ParamStore& params, int layer, Tensor& x_TH, const Tensor& delta_TH,
                          LayerSaved& saved) const {
  const Layer& ids = layers_[static_cast<size_t>(layer)];
  const auto norm2 = kernels::add_rms_norm_forward(x_TH, delta_TH, params.weight(ids.norm2), config_.rms_norm_eps,
                                                   compute_dtype_);
  saved.rstd2_T = norm2.rstd_R;
  saved.gate_TM = project(params, ids.gate, norm2.y_RN);
  saved.up_TM = project(params, ids.up, norm2.y_RN);
}

Tensor Decoder::layer_forward(const ParamStore& params, int layer, Tensor x_TH, const GrainInput& grain, Keep keep,
                              LayerSaved& saved) const {
  const profile::Scope span(profile::Kind::LayerForward, layer);
  LayerSaved dropped;
  LayerSaved& kept = keep == Keep::All ? saved : dropped;
  Tensor delta_TH = attention_delta(params, layer, x_TH, grain, kept);
  dropped = {};  // queries, keys and values are not needed by the MLP
  if (keep != Keep::Nothing) {
    saved.x_TH = x_TH;
    x_TH = x_TH.clone();
  }
  gate_and_up(params, layer, x_TH, delta_TH, kept);
  delta_TH.reset();
  if (keep == Keep::All) {
    saved.x_mid_TH = x_TH;
    x_TH = x_TH.clone();
  }
  const Tensor h_TM = kernels::swiglu_forward(kept.gate_TM, kept.up_TM);
  dropped = {};
  kernels::add_into(x_TH, project(params, layers_[static_cast<size_t>(layer)].down, h_TM));
  return x_TH;
}

// ---- backward --------------------------------------------------------------

void Decoder::layer_backward(const ParamStore& params, int layer, Tensor& dx_TH, const GrainInput& grain,
                             LayerSaved saved, GradSink& sink) const {
  const profile::Scope span(profile::Kind::LayerBackward, layer);
  LS_CHECK(saved.x_TH.defined(), "layer {}: backward without what its forward saves", layer);
  if (!saved.gate_TM.defined()) {
    const Tensor delta_TH = attention_delta(params, layer, saved.x_TH, grain, saved);
    saved.x_mid_TH = saved.x_TH.clone();
    gate_and_up(params, layer, saved.x_mid_TH, delta_TH, saved);
  }
  mlp_backward(params, layer, dx_TH, saved, sink);
  attention_backward(params, layer, dx_TH, grain, saved, sink);
}

void Decoder::mlp_backward(const ParamStore& params, int layer, Tensor& dx_TH, LayerSaved& saved,
                           GradSink& sink) const {
  const Layer& ids = layers_[static_cast<size_t>(layer)];
  Tensor dh_TM;
  {
    const Tensor dy_TH = kernels::convert(dx_TH, compute_dtype_);
    const Tensor h_TM = kernels::swiglu_forward(saved.gate_TM, saved.up_TM);
    project_backward(ids.down, dy_TH, h_TM, sink);
    dh_TM = kernels::linear_backward_input(dy_TH, params.weight(ids.down.weight));
  }
  const auto d = kernels::swiglu_backward(dh_TM, saved.gate_TM, saved.up_TM);
  for (Tensor* done : {&dh_TM, &saved.gate_TM, &saved.up_TM}) done->reset();

  {
    const Tensor y_TH =
        kernels::rms_norm_apply(saved.x_mid_TH, saved.rstd2_T, params.weight(ids.norm2), compute_dtype_);
    project_backward(ids.gate, d.dgate_TM, y_TH, sink);
    project_backward(ids.up, d.dup_TM, y_TH, sink);
  }
  const Tensor dy_TH =
      sum_in(stream_dtype(), {kernels::linear_backward_input(d.dgate_TM, params.weight(ids.gate.weight)),
                              kernels::linear_backward_input(d.dup_TM, params.weight(ids.up.weight))});
  sink.add(ids.norm2,
           kernels::rms_norm_backward(dy_TH, saved.x_mid_TH, saved.rstd2_T, params.weight(ids.norm2), dx_TH));
  saved.x_mid_TH.reset();
}

void Decoder::attention_backward(const ParamStore& params, int layer, Tensor& dx_TH, const GrainInput& grain,
                                 LayerSaved& saved, GradSink& sink) const {
  const Layer& ids = layers_[static_cast<size_t>(layer)];
  const int64_t N = config_.num_heads, K = config_.num_kv_heads, D = config_.head_dim;
  Tensor do_TND;
  {
    const Tensor dy_TH = kernels::convert(dx_TH, compute_dtype_);
    project_backward(ids.o, dy_TH, rows_of_width(saved.attention.o_TND, N * D), sink);
    do_TND = kernels::linear_backward_input(dy_TH, params.weight(ids.o.weight)).view(saved.q_TND.sizes());
  }
  auto d = kernels::attention_backward(do_TND, saved.q_TND, saved.k_TKD, saved.v_TKD, saved.attention,
                                       grain.doc_starts, attention_config(layer, grain));
  saved.attention = {};
  for (Tensor* done : {&do_TND, &saved.q_TND, &saved.k_TKD, &saved.v_TKD}) done->reset();

  kernels::rope_backward(d.dq_TND, grain.position_T, rope_);
  kernels::rope_backward(d.dk_TKD, grain.position_T, rope_);
  if (config_.qk_norm) {
    const auto through_norm = [&](Tensor& dx, Tensor& raw, const Tensor& rstd, ParamId weight) {
      const Tensor rows = rows_of_width(raw, D);
      Tensor sum = at::zeros(rows.sizes(), stream_dtype());
      sink.add(weight, kernels::rms_norm_backward(rows_of_width(dx, D), rows, rstd, params.weight(weight), sum));
      dx = kernels::convert(sum, compute_dtype_).view(raw.sizes());
      raw.reset();
    };
    through_norm(d.dq_TND, saved.q_raw_TND, saved.q_rstd, ids.q_norm);
    through_norm(d.dk_TKD, saved.k_raw_TKD, saved.k_rstd, ids.k_norm);
  }

  const Tensor dq = rows_of_width(d.dq_TND, N * D), dk = rows_of_width(d.dk_TKD, K * D),
               dv = rows_of_width(d.dv_TKD, K * D);
  {
    const Tensor y_TH = kernels::rms_norm_apply(saved.x_TH, saved.rstd1_T, params.weight(ids.norm1), compute_dtype_);
    project_backward(ids.q, dq, y_TH, sink);
    project_backward(ids.k, dk, y_TH, sink);
    project_backward(ids.v, dv, y_TH, sink);
  }
  const Tensor dy_TH = sum_in(stream_dtype(), {kernels::linear_backward_input(dq, params.weight(ids.q.weight)),
                                               kernels::linear_backward_input(dk, params.weight(ids.k.weight)),
                                               kernels::linear_backward_input(dv, params.weight(ids.v.weight))});
  sink.add(ids.norm1, kernels::rms_norm_backward(dy_TH, saved.x_TH, saved.rstd1_T, params.weight(ids.norm1), dx_TH));
}

// ---- what the plan needs to know -------------------------------------------

std::vector<int64_t> Decoder::contributions(int64_t num_grains, int64_t num_tokens, int64_t num_head_chunks) const {
  std::vector<int64_t> out(static_cast<size_t>(num_params_), num_grains);
  out[static_cast<size_t>(embed_id_)] = num_tokens;
  int64_t& head = out[static_cast<size_t>(head_weight_id_)];
  head = head_weight_id_ == embed_id_ ? head + num_head_chunks : num_head_chunks;
  for (int64_t& count : out) count = std::max<int64_t>(count, 1);
  return out;
}

int64_t Decoder::saved_bytes_per_layer(int64_t num_tokens, Keep keep) const {
  if (keep == Keep::Nothing) return 0;
  const int64_t stream = stream_dtype() == at::kDouble ? 8 : 4;
  const int64_t compute = compute_dtype_ == at::kBFloat16 ? 2 : stream;
  const int64_t H = config_.hidden_size, N = config_.num_heads, K = config_.num_kv_heads, D = config_.head_dim;
  if (keep == Keep::InputOnly) return num_tokens * H * stream;
  const int64_t qkv = (N + K) * D * (config_.qk_norm ? 2 : 1) + K * D;
  const int64_t statistics = 2 + N + (config_.qk_norm ? N + K : 0);
  return num_tokens * ((2 * H + statistics) * stream + (qkv + N * D + 2 * config_.intermediate_size) * compute);
}

}  // namespace lockstep::model
