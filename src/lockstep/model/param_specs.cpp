#include "lockstep/model/decoder.h"
#include "lockstep/model/decoder_names.h"
#include "lockstep/model/spec_list.h"

#include <fmt/format.h>

namespace lockstep::model {
namespace {

using detail::SpecList;

void add_norm(SpecList& list, const std::string& name, int64_t width, const DecoderConfig& config, int block) {
  if (name.empty()) return;
  if (config.norm == NormKind::LayerNorm) return list.add_layer_norm(name, width, block);
  list.add(name + ".weight", {width}, block);
}

/// Stored [in, out] where the family does so.
void add_projection(SpecList& list, const std::string& name, int64_t outputs, int64_t inputs, bool bias,
                    const DecoderConfig& config, int block) {
  if (name.empty()) return;
  list.add_linear(name, outputs, inputs, bias, block);
  if (!config.transposed_weights) return;
  auto& shape = list.specs[list.specs.size() - (bias ? 2 : 1)].shape;
  std::swap(shape[0], shape[1]);
}

void add_attention(SpecList& list, const detail::DecoderLayerNames& n, const DecoderConfig& c, int block) {
  const int64_t query_width = c.num_heads * c.head_dim, kv_width = c.num_kv_heads * c.head_dim;
  const auto add = [&](const std::string& name, int64_t outputs, int64_t inputs, bool bias) {
    add_projection(list, name, outputs, inputs, bias, c, block);
  };
  if (c.transposed_weights) add(n.qkv, query_width + 2 * kv_width, c.hidden_size, c.qkv_bias);
  add(n.q, query_width, c.hidden_size, c.qkv_bias);
  add(n.k, kv_width, c.hidden_size, c.qkv_bias);
  add(n.v, kv_width, c.hidden_size, c.qkv_bias);
  add(n.o, c.hidden_size, query_width, c.output_bias);
  if (!c.transposed_weights) add(n.qkv, query_width + 2 * kv_width, c.hidden_size, c.qkv_bias);  // phi3's order
  if (c.qk_norm) {
    list.add(n.q_norm + ".weight", {c.head_dim}, block);
    list.add(n.k_norm + ".weight", {c.head_dim}, block);
  }
}

void add_dense_mlp(SpecList& list, const detail::DecoderLayerNames& n, const DecoderConfig& c, int block) {
  const auto add = [&](const std::string& name, int64_t outputs, int64_t inputs) {
    add_projection(list, name, outputs, inputs, c.mlp_bias, c, block);
  };
  add(n.gate, c.intermediate_size, c.hidden_size);
  add(n.gate_up, 2 * c.intermediate_size, c.hidden_size);
  add(n.up, c.intermediate_size, c.hidden_size);
  add(n.down, c.hidden_size, c.intermediate_size);
}

void add_experts(SpecList& list, const std::string& router, const DecoderConfig& c, int layer, int block) {
  const ExpertsConfig& experts = c.experts;
  list.add_linear(router, experts.count, c.hidden_size, false, block);
  for (int64_t expert = 0; expert < experts.count; ++expert) {
    const detail::ExpertNames n = detail::expert_names(c, layer, expert);
    list.add_linear(n.gate, experts.width, c.hidden_size, false, block);
    list.add_linear(n.up, experts.width, c.hidden_size, false, block);
    list.add_linear(n.down, c.hidden_size, experts.width, false, block);
  }
}

void add_layer(SpecList& list, const DecoderConfig& c, int layer) {
  const detail::DecoderLayerNames n = detail::decoder_layer_names(c, layer);
  const int block = layer + 1;
  const auto norm = [&](const std::string& name) { add_norm(list, name, c.hidden_size, c, block); };
  if (c.model_type == "gpt2") {  // the module tree there has each norm before what it feeds
    norm(n.norm1);
    add_attention(list, n, c, block);
    norm(n.norm2);
    add_dense_mlp(list, n, c, block);
    return;
  }
  add_attention(list, n, c, block);
  if (c.is_sparse(layer)) add_experts(list, n.router, c, layer, block);
  add_dense_mlp(list, n, c, block);
  norm(n.norm1);
  norm(n.post_attention);
  norm(n.norm2);
  norm(n.post_mlp);
}

}  // namespace

std::vector<tensor::ParamSpec> Decoder::param_specs(const DecoderConfig& c) {
  SpecList list;
  const detail::DecoderNames names = detail::decoder_names(c);
  const bool is_head_too = c.num_labels == 0 && c.tie_word_embeddings;
  list.add_table(names.embedding + ".weight", c.vocab_size, c.hidden_size, 0);
  list.specs.back().by_rows = !is_head_too;
  if (c.learned_positions) list.add_table(names.positions + ".weight", c.max_position_embeddings, c.hidden_size, 0);
  for (int layer = 0; layer < c.num_layers; ++layer) add_layer(list, c, layer);
  const int head_block = static_cast<int>(c.num_layers) + 1;
  add_norm(list, names.final_norm, c.hidden_size, c, head_block);
  if (c.num_labels > 0) {
    list.add(names.head + ".weight", {c.num_labels, c.hidden_size}, head_block);
  } else if (!c.tie_word_embeddings) {
    list.add(names.head + ".weight", {c.vocab_size, c.hidden_size}, head_block);
  }
  return std::move(list.specs);
}

}  // namespace lockstep::model
