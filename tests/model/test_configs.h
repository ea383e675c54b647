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

/// A window that is shorter than the documents of the tests.
inline model::DecoderConfig small_mistral() {
  model::DecoderConfig c = small_config("mistral");
  c.sliding_window = 5;
  return c;
}
inline model::DecoderConfig small_gemma2() {
  model::DecoderConfig c = small_config("gemma2");
  c.norm = model::NormKind::RmsPlusOne;
  c.post_norms = c.tie_word_embeddings = true;
  c.activation = "gelu_tanh";
  c.embedding_scale = 4.9;
  c.attention_scale = 0.3;
  c.attention_softcap = 3;
  c.logit_softcap = 4;
  c.sliding_window = 5;
  c.sliding_layers = {true, false};
  return c;
}
inline model::DecoderConfig small_gemma3() {
  model::DecoderConfig c = small_gemma2();
  c.model_type = "gemma3_text";
  c.attention_softcap = c.logit_softcap = 0;
  c.qk_norm = true;
  c.local_rope_theta = 100;
  c.rope = {.type = "linear", .factor = 8};
  return c;
}
/// A part of each head turns, and longer documents by other factors.
inline model::DecoderConfig small_phi3() {
  model::DecoderConfig c = small_config("phi3");
  c.fused_projections = true;
  c.rotary_dim = 4;
  c.rope = {.type = "longrope", .factor = 6.4, .original_max_position_embeddings = 10, .short_factor = {1, 2}, .long_factor = {1, 9}};
  return c;
}
/// Three experts, so that each is chosen in the tests.
inline model::DecoderConfig small_mixtral() {
  model::DecoderConfig c = small_config("mixtral");
  c.experts = {.count = 3, .per_token = 2, .width = 14, .sparse_layers = {true, true}, .router_loss = 0.3};
  return c;
}
/// One layer is dense; the shares do not sum to 1.
inline model::DecoderConfig small_qwen3_moe() {
  model::DecoderConfig c = small_qwen3();
  c.model_type = "qwen3_moe";
  c.experts = {.count = 4, .per_token = 3, .width = 10, .normalise = false, .sparse_layers = {false, true}};
  return c;
}
inline model::DecoderConfig small_gpt2() {
  model::DecoderConfig c = small_config("gpt2");
  c.num_kv_heads = c.num_heads;
  c.norm = model::NormKind::LayerNorm;
  c.activation = "gelu_tanh";
  c.gated_mlp = false;
  c.transposed_weights = c.learned_positions = c.tie_word_embeddings = true;
  c.qkv_bias = c.output_bias = c.mlp_bias = true;
  c.max_position_embeddings = 80;
  return c;
}

}  // namespace lockstep::testing
