#include "lockstep/model/decoder.h"
#include "lockstep/model/spec_list.h"

#include <fmt/format.h>

namespace lockstep::model {

std::vector<tensor::ParamSpec> Decoder::param_specs(const DecoderConfig& c) {
  detail::SpecList list;
  const int64_t query_width = c.num_heads * c.head_dim, kv_width = c.num_kv_heads * c.head_dim;
  const bool is_head_too = c.num_labels == 0 && c.tie_word_embeddings;
  list.add_table("model.embed_tokens.weight", c.vocab_size, c.hidden_size, 0);
  list.specs.back().by_rows = !is_head_too;
  for (int layer = 0; layer < c.num_layers; ++layer) {
    const std::string prefix = fmt::format("model.layers.{}.", layer);
    const int block = layer + 1;
    list.add_linear(prefix + "self_attn.q_proj", query_width, c.hidden_size, c.qkv_bias, block);
    list.add_linear(prefix + "self_attn.k_proj", kv_width, c.hidden_size, c.qkv_bias, block);
    list.add_linear(prefix + "self_attn.v_proj", kv_width, c.hidden_size, c.qkv_bias, block);
    list.add_linear(prefix + "self_attn.o_proj", c.hidden_size, query_width, c.output_bias, block);
    if (c.qk_norm) {
      list.add(prefix + "self_attn.q_norm.weight", {c.head_dim}, block);
      list.add(prefix + "self_attn.k_norm.weight", {c.head_dim}, block);
    }
    list.add_linear(prefix + "mlp.gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias, block);
    list.add_linear(prefix + "mlp.up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias, block);
    list.add_linear(prefix + "mlp.down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias, block);
    list.add(prefix + "input_layernorm.weight", {c.hidden_size}, block);
    list.add(prefix + "post_attention_layernorm.weight", {c.hidden_size}, block);
  }
  const int head_block = static_cast<int>(c.num_layers) + 1;
  list.add("model.norm.weight", {c.hidden_size}, head_block);
  if (c.num_labels > 0) {
    list.add("score.weight", {c.num_labels, c.hidden_size}, head_block);
  } else if (!c.tie_word_embeddings) {
    list.add("lm_head.weight", {c.vocab_size, c.hidden_size}, head_block);
  }
  return std::move(list.specs);
}

}  // namespace lockstep::model
