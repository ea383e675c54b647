#pragma once

#include "lockstep/model/config.h"

/// Small models that between them use every branch of a layer.
namespace lockstep::testing {

inline model::DecoderConfig small_config(const std::string& model_type) {
  model::DecoderConfig c;
  c.model_type = model_type;
  c.hidden_size = 24;
  c.intermediate_size = 40;
  c.num_layers = 2;
  c.vocab_size = 48;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 6;
  c.max_position_embeddings = 64;
  return c;
}

/// Tied, no biases.
inline model::DecoderConfig small_llama() {
  model::DecoderConfig c = small_config("llama");
  c.tie_word_embeddings = true;
  return c;
}
/// Untied, every bias, llama3 rope scaling that blends one frequency.
inline model::DecoderConfig small_llama_with_biases() {
  model::DecoderConfig c = small_config("llama");
  c.qkv_bias = c.output_bias = c.mlp_bias = true;
  c.rope = {.type = "llama3", .factor = 8, .original_max_position_embeddings = 16};
  return c;
}
inline model::DecoderConfig small_qwen2() {
  model::DecoderConfig c = small_config("qwen2");
  c.qkv_bias = c.tie_word_embeddings = true;
  return c;
}
/// head_dim * num_heads is not the hidden size; one head per key/value head.
inline model::DecoderConfig small_qwen3() {
  model::DecoderConfig c = small_config("qwen3");
  c.qk_norm = true;
  c.head_dim = 10;
  c.num_kv_heads = 4;
  return c;
}

}  // namespace lockstep::testing
