#include "lockstep/model/decoder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/model/decoder_names.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <utility>

/// The embedding, and what the plan needs to know. Layers: decoder_forward.cpp, decoder_backward.cpp.
namespace lockstep::model {

using at::Tensor;
using tensor::GradSink;
using tensor::ParamId;
using tensor::ParamStore;

DecoderOptions training_options(const DecoderConfig& config, uint64_t seed) {
  return {.attention_dropout = config.attention_dropout,
          .seed = seed,
          .residual_dropout = config.residual_dropout,
          .embedding_dropout = config.embedding_dropout};
}

Decoder::Decoder(DecoderConfig config, int64_t max_positions, at::ScalarType compute_dtype, DecoderOptions options)
    : config_(std::move(config)),
      compute_dtype_(compute_dtype),
      options_(options),
      gate_(config_.activation == "silu" ? kernels::Gate::Silu : kernels::Gate::GeluTanh) {
  LS_CHECK(config_.activation == "silu" || config_.activation == "gelu_tanh", "activation {}", config_.activation);
  if (!config_.learned_positions) {
    rotary_ = Rotary(config_, false, max_positions, stream_dtype());
    if (config_.local_rope_theta > 0) local_rotary_ = Rotary(config_, true, max_positions, stream_dtype());
  }
  std::map<std::string, ParamId> ids;
  for (const tensor::ParamSpec& spec : param_specs(config_)) ids.emplace(spec.name, num_params_++);
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) layers_.push_back(find_layer(ids, layer));

  const detail::DecoderNames names = detail::decoder_names(config_);
  embed_id_ = ids.at(names.embedding + ".weight");
  if (config_.learned_positions) position_id_ = ids.at(names.positions + ".weight");
  final_norm_ = {ids.at(names.final_norm + ".weight"), -1, config_.norm, config_.rms_norm_eps};
  if (config_.norm == NormKind::LayerNorm) final_norm_.bias = ids.at(names.final_norm + ".bias");
  const bool tied = config_.num_labels == 0 && config_.tie_word_embeddings;
  head_weight_id_ = tied ? embed_id_ : ids.at(names.head + ".weight");
}

Decoder::Layer Decoder::find_layer(const std::map<std::string, ParamId>& ids, int64_t layer) const {
  const auto find = [&](const std::string& name, const char* part) {
    const auto it = ids.find(name + part);
    return it == ids.end() ? ParamId{-1} : it->second;
  };
  const auto linear = [&](const std::string& name) {
    return Linear{find(name, ".weight"), find(name, ".bias"), config_.transposed_weights};
  };
  const auto norm = [&](const std::string& name) {
    return Norm{find(name, ".weight"), find(name, ".bias"), config_.norm, config_.rms_norm_eps};
  };
  ExpertsIds experts{.router = find(detail::decoder_layer_names(config_, layer).router, ".weight"), .gate = {}, .up = {}, .down = {}};
  for (int64_t expert = 0; experts.router >= 0 && expert < config_.experts.count; ++expert) {
    const detail::ExpertNames names = detail::expert_names(config_, layer, expert);
    experts.gate.push_back(linear(names.gate));
    experts.up.push_back(linear(names.up));
    experts.down.push_back(linear(names.down));
  }
  const detail::DecoderLayerNames n = detail::decoder_layer_names(config_, layer);
  return {.q = linear(n.q),
          .k = linear(n.k),
          .v = linear(n.v),
          .qkv = linear(n.qkv),
          .o = linear(n.o),
          .gate = linear(n.gate),
          .up = linear(n.up),
          .gate_up = linear(n.gate_up),
          .down = linear(n.down),
          .norm1 = norm(n.norm1),
          .norm2 = norm(n.norm2),
          .post1 = norm(n.post_attention),
          .post2 = norm(n.post_mlp),
          .q_norm = norm(n.q_norm),
          .k_norm = norm(n.k_norm),
          .experts = std::move(experts)};
}

at::ScalarType Decoder::stream_dtype() const { return compute_dtype_ == at::kDouble ? at::kDouble : at::kFloat; }

Tensor Decoder::drop(const Tensor& x_TH, at::ScalarType dtype, const GrainInput& grain, double probability, int module,
                     int place) const {
  if (probability == 0) return in_dtype(x_TH, dtype);
  return kernels::dropout(x_TH, dtype, grain.doc_starts, grain.ordinals,
                          {.probability = probability,
                           .seed = options_.seed,
                           .module = static_cast<uint32_t>(module),
                           .segment = kernels::kHiddenDropoutSegment + static_cast<uint32_t>(place)});
}

// ---- embedding -------------------------------------------------------------

Tensor Decoder::embed_forward(const ParamStore& params, const GrainInput& grain) const {
  const profile::Scope span(profile::Kind::EmbeddingForward);
  Tensor x_TH = config_.learned_positions
                    ? kernels::embedding_sum_forward({{grain.token_T, params.weight(embed_id_)},
                                                      {grain.position_T, params.weight(position_id_)}})
                    : kernels::embedding_forward(grain.token_T, params.weight(embed_id_), stream_dtype());
  if (config_.embedding_scale != 1) x_TH.mul_(config_.embedding_scale);
  return drop(x_TH, stream_dtype(), grain, options_.embedding_dropout, num_layers(), 0);
}

void Decoder::embed_backward(const ParamStore&, const GrainInput& grain, const Tensor& dx_TH, GradSink& sink) const {
  const profile::Scope span(profile::Kind::EmbeddingBackward);
  Tensor d_TH = drop(dx_TH, stream_dtype(), grain, options_.embedding_dropout, num_layers(), 0);
  if (config_.embedding_scale != 1) d_TH = at::mul(d_TH, config_.embedding_scale);
  if (config_.learned_positions) sink.add_rows(position_id_, grain.position_T.to(at::kLong), d_TH);
  const auto* token_T = grain.token_T.const_data_ptr<int32_t>();
  std::vector<int64_t> trained;  // positions; the padding token's row gets no gradient from here (config.h)
  for (int64_t t = 0; t < grain.num_tokens(); ++t)
    if (token_T[t] != config_.pad_token_id) trained.push_back(t);
  const auto R = static_cast<int64_t>(trained.size());
  if (R == grain.num_tokens()) {
    sink.add_rows(embed_id_, grain.token_T.to(at::kLong), d_TH);
    return;
  }
  Tensor position_R = at::empty({R}, at::kLong), token_R = at::empty({R}, at::kLong);
  for (int64_t r = 0; r < R; ++r) {
    const int64_t t = position_R.mutable_data_ptr<int64_t>()[r] = trained[static_cast<size_t>(r)];
    token_R.mutable_data_ptr<int64_t>()[r] = token_T[t];
  }
  sink.add_rows(embed_id_, token_R, kernels::gather_rows(d_TH, position_R));
}

// ---- what the plan needs to know -------------------------------------------

std::vector<int64_t> Decoder::contributions(int64_t num_grains, int64_t num_tokens, int64_t num_head_chunks) const {
  std::vector<int64_t> out(static_cast<size_t>(num_params_), num_grains);
  out[static_cast<size_t>(embed_id_)] = num_tokens;
  if (position_id_ >= 0) out[static_cast<size_t>(position_id_)] = num_tokens;
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
  const int64_t norms = (config_.norm == NormKind::LayerNorm ? 4 : 2) + (config_.post_norms ? 2 : 0);
  const int64_t statistics = norms + N + (config_.qk_norm ? N + K : 0);
  const int64_t branches = config_.post_norms ? 2 * H : 0;
  const int64_t mlp = mlp_bytes_per_token(stream, compute);
  return num_tokens * ((2 * H + statistics) * stream + (qkv + N * D + branches) * compute + mlp);
}

/// Of the larger kind, where some layers are sparse.
int64_t Decoder::mlp_bytes_per_token(int64_t stream, int64_t compute) const {
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
    const ExpertsConfig& experts = config_.experts;
    const int64_t sparse = experts.per_token * (2 * experts.width * compute + stream + 8) + experts.count * stream;
    const int64_t dense = (config_.gated_mlp ? 2 : 1) * config_.intermediate_size * compute;
    bytes = std::max(bytes, config_.is_sparse(layer) ? sparse : dense);
  }
  return bytes;
}

}  // namespace lockstep::model
