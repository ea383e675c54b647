#include "lockstep/base/profile.h"
#include "lockstep/kernels/activation.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/model/decoder.h"
#include "lockstep/model/decoder_parts.h"
#include "lockstep/model/decoding.h"

#include <cmath>
#include <utility>

namespace lockstep::model {

using at::Tensor;
using tensor::ParamStore;

kernels::AttentionConfig Decoder::attention_config(int layer, const GrainInput& grain) const {
  return {.scale = config_.attention_scale > 0 ? config_.attention_scale
                                               : 1 / std::sqrt(static_cast<double>(config_.head_dim)),
          .dropout = {.probability = options_.attention_dropout,
                      .seed = options_.seed,
                      .module = static_cast<uint32_t>(layer),
                      .ordinals = grain.ordinals},
          .window = config_.window(layer),
          .softcap = config_.attention_softcap};
}

void Decoder::project_qkv(const ParamStore& params, int layer, const Tensor& y_TH, LayerSaved& saved) const {
  const Layer& ids = layer_of(layer);
  const int64_t T = y_TH.size(0), N = config_.num_heads, K = config_.num_kv_heads, D = config_.head_dim;
  if (ids.qkv.weight >= 0) {
    const Tensor qkv = project(params, ids.qkv, y_TH).view({T, N + 2 * K, D});
    saved.q_TND = qkv.narrow(1, 0, N);
    saved.k_TKD = qkv.narrow(1, N, K);
    saved.v_TKD = qkv.narrow(1, N + K, K);
    return;
  }
  saved.q_TND = project(params, ids.q, y_TH).view({T, N, D});
  saved.k_TKD = project(params, ids.k, y_TH).view({T, K, D});
  saved.v_TKD = project(params, ids.v, y_TH).view({T, K, D});
}

Tensor Decoder::end_branch(const ParamStore& params, const Norm& post, Tensor branch_TH, NormState& state, Tensor& kept_TH,
                           const GrainInput& grain, int layer, int place) const {
  if (post.weight >= 0) {
    kept_TH = std::move(branch_TH);
    Normed normed = norm_forward(params, post, kept_TH, compute_dtype_);
    state = std::move(normed.state);
    branch_TH = std::move(normed.y_RN);
  }
  return drop(branch_TH, compute_dtype_, grain, options_.residual_dropout, layer, place);
}

kernels::AttentionSaved Decoder::attend(int layer, const GrainInput& grain, const LayerSaved& saved) const {
  for (size_t doc = 0; doc < grain.caches.size(); ++doc) {
    const int64_t first = grain.doc_starts[doc], count = grain.doc_starts[doc + 1] - first;
    grain.caches[doc]->append(layer, saved.k_TKD.narrow(0, first, count), saved.v_TKD.narrow(0, first, count));
  }
  const kernels::AttentionConfig config = attention_config(layer, grain);
  ThreadTeam* team = TokenByToken::team();
  if (team == nullptr) return kernels::attention_forward(saved.q_TND, saved.k_TKD, saved.v_TKD, grain.doc_starts, config);
  std::vector<kernels::CachedTokens> cached;
  for (const KvCache* cache : grain.caches) cached.push_back(cache->layer(layer));
  return {kernels::token_attention(saved.q_TND, cached, config, *team), {}};
}

Tensor Decoder::attention_delta(const ParamStore& params, int layer, const Tensor& x_TH, const GrainInput& grain,
                                LayerSaved& saved) const {
  const Layer& ids = layer_of(layer);
  Normed norm1 = norm_forward(params, ids.norm1, x_TH, compute_dtype_);
  saved.norm1 = std::move(norm1.state);
  project_qkv(params, layer, norm1.y_RN, saved);
  norm1 = {};

  if (config_.qk_norm) {
    const auto normed = [&](Tensor& x, Tensor& raw, NormState& state, const Norm& norm) {
      raw = x;
      Normed out = norm_forward(params, norm, rows_of_width(raw, config_.head_dim), compute_dtype_);
      state = std::move(out.state);
      x = out.y_RN.view(raw.sizes());
    };
    normed(saved.q_TND, saved.q_raw_TND, saved.q_norm, ids.q_norm);
    normed(saved.k_TKD, saved.k_raw_TKD, saved.k_norm, ids.k_norm);
  }
  if (!config_.learned_positions) {
    const Rotary::Turn turn = rotary(layer).turn(grain);
    kernels::rope_forward(saved.q_TND, turn.row_T, turn.table);
    kernels::rope_forward(saved.k_TKD, turn.row_T, turn.table);
  }
  saved.attention = attend(layer, grain, saved);
  const Tensor o_TH = rows_of_width(saved.attention.o_TND, config_.num_heads * config_.head_dim);
  return end_branch(params, ids.post1, project(params, ids.o, o_TH), saved.post1, saved.branch1_TH, grain, layer,
                    detail::kAfterAttention);
}

void Decoder::gate_and_up(const ParamStore& params, int layer, Tensor& x_TH, const Tensor& delta_TH,
                          LayerSaved& saved) const {
  const Layer& ids = layer_of(layer);
  Normed norm2 = add_norm_forward(params, ids.norm2, x_TH, delta_TH, compute_dtype_);
  saved.norm2 = std::move(norm2.state);
  if (ids.experts.router >= 0)
    return experts_enter(params, ids.experts, config_.experts, norm2.y_RN, saved.experts, saved.router);
  if (ids.gate_up.weight >= 0) {
    const Tensor both = project(params, ids.gate_up, norm2.y_RN);
    saved.gate_TM = both.narrow(1, 0, config_.intermediate_size).contiguous();
    saved.up_TM = both.narrow(1, config_.intermediate_size, config_.intermediate_size).contiguous();
    return;
  }
  if (config_.gated_mlp) saved.gate_TM = project(params, ids.gate, norm2.y_RN);
  saved.up_TM = project(params, ids.up, norm2.y_RN);
}

Tensor Decoder::activate(const LayerSaved& saved) const {
  return config_.gated_mlp ? kernels::swiglu_forward(saved.gate_TM, saved.up_TM, gate_)
                           : kernels::activation_forward(kernels::Activation::GeluTanh, saved.up_TM);
}

Tensor Decoder::mlp_delta(const ParamStore& params, int layer, const GrainInput& grain, LayerSaved& saved) const {
  const Layer& ids = layer_of(layer);
  if (ids.experts.router >= 0) return experts_leave(params, ids.experts, config_.hidden_size, saved.experts);
  return end_branch(params, ids.post2, project(params, ids.down, activate(saved)), saved.post2, saved.branch2_TH, grain,
                    layer, detail::kAfterMlp);
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
  if (keep != Keep::All) saved.router = dropped.router;
  delta_TH.reset();
  if (keep == Keep::All) {
    saved.x_mid_TH = x_TH;
    x_TH = x_TH.clone();
  }
  delta_TH = mlp_delta(params, layer, grain, kept);
  dropped = {};
  kernels::add_into(x_TH, delta_TH);
  return x_TH;
}

}  // namespace lockstep::model
