#include "lockstep/model/decoder_names.h"

#include <fmt/format.h>

namespace lockstep::model::detail {
namespace {

DecoderLayerNames gpt2_layer_names(int64_t layer) {
  const std::string prefix = fmt::format("transformer.h.{}.", layer);
  DecoderLayerNames n;
  n.norm1 = prefix + "ln_1";
  n.qkv = prefix + "attn.c_attn";
  n.o = prefix + "attn.c_proj";
  n.norm2 = prefix + "ln_2";
  n.up = prefix + "mlp.c_fc";
  n.down = prefix + "mlp.c_proj";
  return n;
}

}  // namespace

DecoderNames decoder_names(const DecoderConfig& config) {
  const std::string head = config.num_labels > 0 ? "score" : "lm_head";
  if (config.model_type == "gpt2") return {"transformer.wte", "transformer.wpe", "transformer.ln_f", head};
  return {"model.embed_tokens", "", "model.norm", head};
}

DecoderLayerNames decoder_layer_names(const DecoderConfig& c, int64_t layer) {
  if (c.model_type == "gpt2") return gpt2_layer_names(layer);
  const std::string prefix = fmt::format("model.layers.{}.", layer), attention = prefix + "self_attn.", mlp = prefix + "mlp.";
  DecoderLayerNames n;
  if (c.fused_projections) {
    n.qkv = attention + "qkv_proj";
  } else {
    n.q = attention + "q_proj";
    n.k = attention + "k_proj";
    n.v = attention + "v_proj";
  }
  n.o = attention + "o_proj";
  if (c.qk_norm) {
    n.q_norm = attention + "q_norm";
    n.k_norm = attention + "k_norm";
  }
  if (c.is_sparse(layer)) {
    n.router = c.model_type == "mixtral" ? prefix + "block_sparse_moe.gate" : mlp + "gate";
  } else {
    if (c.fused_projections) {
      n.gate_up = mlp + "gate_up_proj";
    } else {
      n.gate = mlp + "gate_proj";
      n.up = mlp + "up_proj";
    }
    n.down = mlp + "down_proj";
  }
  n.norm1 = prefix + "input_layernorm";
  n.norm2 = prefix + (c.post_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm");
  if (c.post_norms) {
    n.post_attention = prefix + "post_attention_layernorm";
    n.post_mlp = prefix + "post_feedforward_layernorm";
  }
  return n;
}

ExpertNames expert_names(const DecoderConfig& config, int64_t layer, int64_t expert) {
  if (config.model_type == "mixtral") {
    const std::string prefix = fmt::format("model.layers.{}.block_sparse_moe.experts.{}.", layer, expert);
    return {prefix + "w1", prefix + "w3", prefix + "w2"};
  }
  const std::string prefix = fmt::format("model.layers.{}.mlp.experts.{}.", layer, expert);
  return {prefix + "gate_proj", prefix + "up_proj", prefix + "down_proj"};
}

}  // namespace lockstep::model::detail
