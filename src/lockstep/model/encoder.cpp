#include "lockstep/model/encoder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/embedding.h"
#include "lockstep/model/encoder_names.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace lockstep::model {
namespace {

using at::Tensor;
using tensor::GradSink;
using tensor::ParamId;
using tensor::ParamStore;

constexpr int kAfterAttention = 0, kAfterMlp = 1, kAfterEmbedding = 0;  // places of dropout in a module

kernels::Activation activation_named(const std::string& name) {
  if (name == "gelu") return kernels::Activation::Gelu;
  if (name == "gelu_tanh") return kernels::Activation::GeluTanh;
  LS_CHECK(name == "relu", "activation {}", name);
  return kernels::Activation::Relu;
}

Tensor index_tensor(const std::vector<int64_t>& values) {
  Tensor out = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<int64_t>());
  return out;
}

}  // namespace

Encoder::Encoder(EncoderConfig config, at::ScalarType compute_dtype, EncoderOptions options)
    : config_(std::move(config)),
      compute_dtype_(compute_dtype),
      options_(options),
      activation_(activation_named(config_.activation)) {
  std::map<std::string, ParamId> ids;
  for (const tensor::ParamSpec& spec : param_specs(config_)) ids.emplace(spec.name, num_params_++);
  const auto linear = [&](const std::string& name) { return Linear{ids.at(name + ".weight"), ids.at(name + ".bias")}; };
  const auto norm = [&](const std::string& name) { return Norm{ids.at(name + ".weight"), ids.at(name + ".bias")}; };
  for (int64_t l = 0; l < config_.num_layers; ++l) {
    const detail::EncoderLayerNames names = detail::encoder_layer_names(config_, l);
    layers_.push_back({.q = linear(names.q),
                       .k = linear(names.k),
                       .v = linear(names.v),
                       .o = linear(names.o),
                       .up = linear(names.up),
                       .down = linear(names.down),
                       .norm1 = norm(names.norm1),
                       .norm2 = norm(names.norm2)});
  }
  const std::string embeddings = config_.prefix + "embeddings.";
  word_id_ = ids.at(embeddings + "word_embeddings.weight");
  position_id_ = ids.at(embeddings + "position_embeddings.weight");
  if (config_.type_vocab_size > 0) type_id_ = ids.at(embeddings + "token_type_embeddings.weight");
  embed_norm_ = norm(embeddings + "LayerNorm");
}

at::ScalarType Encoder::stream_dtype() const { return compute_dtype_ == at::kDouble ? at::kDouble : at::kFloat; }

Tensor Encoder::drop(const Tensor& x_TH, at::ScalarType dtype, const GrainInput& grain, int module, int place) const {
  return kernels::dropout(x_TH, dtype, grain.doc_starts, grain.ordinals,
                          {.probability = options_.hidden_dropout,
                           .seed = options_.seed,
                           .module = static_cast<uint32_t>(module),
                           .segment = kernels::kHiddenDropoutSegment + static_cast<uint32_t>(place)});
}

// ---- embedding -------------------------------------------------------------

Tensor Encoder::places(const GrainInput& grain) const {
  for (int64_t doc = 0; doc < grain.num_docs(); ++doc) {
    const auto d = static_cast<size_t>(doc);
    const int64_t length = grain.doc_starts[d + 1] - grain.doc_starts[d];
    if (length > config_.max_document_tokens())
      throw Error::data("sample {} has {} tokens; the model's table of positions has room for {}. Truncate the samples "
                        "to that length (--max_length).",
                        grain.sample_ids[d], length, config_.max_document_tokens());
  }
  if (config_.first_position == 0) return grain.position_T;

  // As roberta counts them: padding tokens inside a document stay at their own row and are not counted.
  Tensor place_T = at::empty({grain.num_tokens()}, at::kInt);
  auto* place = place_T.mutable_data_ptr<int32_t>();
  const auto* token = grain.token_T.const_data_ptr<int32_t>();
  for (size_t doc = 0; doc + 1 < grain.doc_starts.size(); ++doc) {
    auto next = static_cast<int32_t>(config_.first_position);
    for (int64_t t = grain.doc_starts[doc]; t < grain.doc_starts[doc + 1]; ++t)
      place[t] = token[t] == config_.pad_token_id ? static_cast<int32_t>(config_.pad_token_id) : next++;
  }
  return place_T;
}

Tensor Encoder::sum_of_embeddings(const ParamStore& params, const GrainInput& grain) const {
  const kernels::EmbeddingRows words{grain.token_T, params.weight(word_id_)};
  const kernels::EmbeddingRows positions{places(grain), params.weight(position_id_)};
  if (type_id_ < 0) return kernels::embedding_sum_forward({words, positions});
  const Tensor type_T = grain.type_T.defined() ? grain.type_T : at::zeros({grain.num_tokens()}, at::kInt);
  return kernels::embedding_sum_forward({words, {type_T, params.weight(type_id_)}, positions});
}

Tensor Encoder::embed_forward(const ParamStore& params, const GrainInput& grain) const {
  const profile::Scope span(profile::Kind::EmbeddingForward);
  const Tensor sum_TH = sum_of_embeddings(params, grain);
  const auto norm = kernels::layer_norm_forward(sum_TH, params.weight(embed_norm_.weight),
                                                params.weight(embed_norm_.bias), config_.layer_norm_eps, stream_dtype());
  return drop(norm.y_RN, stream_dtype(), grain, num_layers(), kAfterEmbedding);
}

void Encoder::embed_backward(const ParamStore& params, const GrainInput& grain, const Tensor& dx_TH,
                             GradSink& sink) const {
  const profile::Scope span(profile::Kind::EmbeddingBackward);
  const Tensor sum_TH = sum_of_embeddings(params, grain);
  const auto norm = kernels::layer_norm_forward(sum_TH, params.weight(embed_norm_.weight),
                                                params.weight(embed_norm_.bias), config_.layer_norm_eps, stream_dtype());
  Tensor d_TH = drop(dx_TH, stream_dtype(), grain, num_layers(), kAfterEmbedding);
  if (d_TH.is_same(dx_TH)) d_TH = dx_TH.clone();
  norm_backward(params, embed_norm_, sum_TH, norm.moments, d_TH, sink);

  // torch's padding_idx: the padding token's row gets no gradient, nor does its position in roberta.
  const auto* token = grain.token_T.const_data_ptr<int32_t>();
  const Tensor place_T = places(grain);
  const auto* place = place_T.const_data_ptr<int32_t>();
  std::vector<int64_t> trained, tokens, positions;
  for (int64_t t = 0; t < grain.num_tokens(); ++t) {
    if (token[t] == config_.pad_token_id) continue;
    trained.push_back(t);
    tokens.push_back(token[t]);
    positions.push_back(place[t]);
  }
  const Tensor d_trained = kernels::gather_rows(d_TH, index_tensor(trained));
  sink.add_rows(word_id_, index_tensor(tokens), d_trained);
  if (config_.first_position > 0) {
    sink.add_rows(position_id_, index_tensor(positions), d_trained);
  } else {
    sink.add_rows(position_id_, place_T.to(at::kLong), d_TH);
  }
  if (type_id_ < 0) return;

  // Few rows, many tokens: one dense contribution per grain.
  Tensor dw = at::zeros({config_.type_vocab_size, config_.hidden_size}, stream_dtype());
  for (int64_t type = 0; type < config_.type_vocab_size; ++type) {
    std::vector<int64_t> of_type;
    for (int64_t t = 0; t < grain.num_tokens(); ++t)
      if ((grain.type_T.defined() ? grain.type_T.const_data_ptr<int32_t>()[t] : 0) == type) of_type.push_back(t);
    if (of_type.empty()) continue;
    dw.select(0, type).copy_(kernels::linear_backward_bias(kernels::gather_rows(d_TH, index_tensor(of_type))));
  }
  sink.add(type_id_, dw);
}

// ---- forward ---------------------------------------------------------------

kernels::AttentionConfig Encoder::attention_config(int layer, const GrainInput& grain) const {
  return {.scale = 1 / std::sqrt(static_cast<double>(config_.head_dim())),
          .dropout = {.probability = options_.attention_dropout,
                      .seed = options_.seed,
                      .module = static_cast<uint32_t>(layer),
                      .ordinals = grain.ordinals},
          .causal = false};
}

Tensor Encoder::run_layer(const ParamStore& params, int layer, Tensor x_TH, const GrainInput& grain,
                          EncoderSaved& saved) const {
  const Layer& ids = layers_[static_cast<size_t>(layer)];
  const int64_t T = x_TH.size(0), N = config_.num_heads, D = config_.head_dim();
  const auto post_norm = [&](const Norm& norm, Tensor& sum_TH, const Tensor& delta_TH) {
    return kernels::add_layer_norm_forward(sum_TH, delta_TH, params.weight(norm.weight), params.weight(norm.bias),
                                           config_.layer_norm_eps, stream_dtype());
  };
  {
    const Tensor in = in_dtype(x_TH, compute_dtype_);
    saved.q_TND = project(params, ids.q, in).view({T, N, D});
    saved.k_TND = project(params, ids.k, in).view({T, N, D});
    saved.v_TND = project(params, ids.v, in).view({T, N, D});
  }
  saved.attention = kernels::attention_forward(saved.q_TND, saved.k_TND, saved.v_TND, grain.doc_starts,
                                               attention_config(layer, grain));
  Tensor delta_TH = project(params, ids.o, rows_of_width(saved.attention.o_TND, N * D));
  delta_TH = drop(delta_TH, compute_dtype_, grain, layer, kAfterAttention);
  saved.sum1_TH = std::move(x_TH);
  auto norm1 = post_norm(ids.norm1, saved.sum1_TH, delta_TH);
  saved.moments1 = norm1.moments;

  saved.h_TM = project(params, ids.up, in_dtype(norm1.y_RN, compute_dtype_));
  delta_TH = project(params, ids.down, kernels::activation_forward(activation_, saved.h_TM));
  delta_TH = drop(delta_TH, compute_dtype_, grain, layer, kAfterMlp);
  saved.sum2_TH = std::move(norm1.y_RN);
  auto norm2 = post_norm(ids.norm2, saved.sum2_TH, delta_TH);
  saved.moments2 = norm2.moments;
  return norm2.y_RN;
}

Tensor Encoder::layer_forward(const ParamStore& params, int layer, Tensor x_TH, const GrainInput& grain, Keep keep,
                              EncoderSaved& saved) const {
  const profile::Scope span(profile::Kind::LayerForward, layer);
  if (keep != Keep::Nothing) {
    saved.x_TH = x_TH;
    x_TH = x_TH.clone();
  }
  EncoderSaved dropped;
  return run_layer(params, layer, std::move(x_TH), grain, keep == Keep::All ? saved : dropped);
}

// ---- backward --------------------------------------------------------------

void Encoder::norm_backward(const ParamStore& params, const Norm& norm, const Tensor& sum_TH,
                            const kernels::LayerNormMoments& moments, Tensor& dx_TH, GradSink& sink) const {
  const auto grads = kernels::layer_norm_backward(dx_TH, sum_TH, moments, params.weight(norm.weight));
  sink.add(norm.weight, grads.dw_N);
  sink.add(norm.bias, grads.db_N);
}

void Encoder::layer_backward(const ParamStore& params, int layer, Tensor& dx_TH, const GrainInput& grain,
                             EncoderSaved saved, GradSink& sink) const {
  const profile::Scope span(profile::Kind::LayerBackward, layer);
  LS_CHECK(saved.x_TH.defined(), "layer {}: backward without what its forward saves", layer);
  if (!saved.h_TM.defined()) run_layer(params, layer, saved.x_TH.clone(), grain, saved);
  mlp_backward(params, layer, dx_TH, grain, saved, sink);
  attention_backward(params, layer, dx_TH, grain, saved, sink);
}

void Encoder::mlp_backward(const ParamStore& params, int layer, Tensor& dx_TH, const GrainInput& grain,
                           EncoderSaved& saved, GradSink& sink) const {
  const Layer& ids = layers_[static_cast<size_t>(layer)];
  norm_backward(params, ids.norm2, saved.sum2_TH, saved.moments2, dx_TH, sink);
  saved.sum2_TH.reset();
  Tensor dh_TM;
  {
    const Tensor dy_TH = drop(dx_TH, compute_dtype_, grain, layer, kAfterMlp);
    project_backward(ids.down, dy_TH, kernels::activation_forward(activation_, saved.h_TM), sink);
    dh_TM = kernels::linear_backward_input(dy_TH, params.weight(ids.down.weight));
  }
  dh_TM = kernels::activation_backward(activation_, dh_TM, saved.h_TM);
  saved.h_TM.reset();
  project_backward(ids.up, dh_TM,
                   kernels::layer_norm_apply(saved.sum1_TH, saved.moments1, params.weight(ids.norm1.weight),
                                             params.weight(ids.norm1.bias), compute_dtype_),
                   sink);
  kernels::add_into(dx_TH, kernels::linear_backward_input(dh_TM, params.weight(ids.up.weight)));
}

void Encoder::attention_backward(const ParamStore& params, int layer, Tensor& dx_TH, const GrainInput& grain,
                                 EncoderSaved& saved, GradSink& sink) const {
  const Layer& ids = layers_[static_cast<size_t>(layer)];
  const int64_t H = config_.hidden_size;
  norm_backward(params, ids.norm1, saved.sum1_TH, saved.moments1, dx_TH, sink);
  saved.sum1_TH.reset();
  Tensor do_TND;
  {
    const Tensor dy_TH = drop(dx_TH, compute_dtype_, grain, layer, kAfterAttention);
    project_backward(ids.o, dy_TH, rows_of_width(saved.attention.o_TND, H), sink);
    do_TND = kernels::linear_backward_input(dy_TH, params.weight(ids.o.weight)).view(saved.q_TND.sizes());
  }
  const auto d = kernels::attention_backward(do_TND, saved.q_TND, saved.k_TND, saved.v_TND, saved.attention,
                                             grain.doc_starts, attention_config(layer, grain));
  saved.attention = {};
  for (Tensor* done : {&do_TND, &saved.q_TND, &saved.k_TND, &saved.v_TND}) done->reset();

  const Tensor in = in_dtype(saved.x_TH, compute_dtype_);
  for (const auto& [linear, dy] : {std::pair{ids.q, d.dq_TND}, {ids.k, d.dk_TKD}, {ids.v, d.dv_TKD}}) {
    project_backward(linear, rows_of_width(dy, H), in, sink);
    kernels::add_into(dx_TH, kernels::linear_backward_input(rows_of_width(dy, H), params.weight(linear.weight)));
  }
}

// ---- what the plan needs to know -------------------------------------------

std::vector<int64_t> Encoder::contributions(int64_t num_grains, int64_t num_tokens, int64_t num_docs) const {
  std::vector<int64_t> out(static_cast<size_t>(num_params_), std::max<int64_t>(num_grains, 1));
  out[static_cast<size_t>(word_id_)] = std::max<int64_t>(num_tokens, 1);
  out[static_cast<size_t>(position_id_)] = std::max<int64_t>(num_docs, 1);
  return out;
}

int64_t Encoder::saved_bytes_per_layer(int64_t num_tokens, Keep keep) const {
  if (keep == Keep::Nothing) return 0;
  const int64_t stream = stream_dtype() == at::kDouble ? 8 : 4;
  const int64_t compute = compute_dtype_ == at::kBFloat16 ? 2 : stream;
  const int64_t H = config_.hidden_size;
  if (keep == Keep::InputOnly) return num_tokens * H * stream;
  return num_tokens * ((3 * H + 4 + config_.num_heads) * stream + (4 * H + config_.intermediate_size) * compute);
}

}  // namespace lockstep::model
