#include "lockstep/model/families.h"

#include "lockstep/base/error.h"
#include "lockstep/model/config_parts.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::model::detail {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxLayers = 1 << 14;
constexpr int64_t kMaxInt32 = INT32_MAX;  // token ids and positions are int32

// ---- parts that several families have --------------------------------------

void need_activation(const JsonFields& fields, const char* key, const std::string& absent,
                     std::initializer_list<const char*> known) {
  const std::string act = fields.text(key, absent);
  for (const char* name : known)
    if (act == name) return;
  throw Error::data("{}: this activation is not there. There is: {}.", fields.where(key), *known.begin());
}

void need_silu(const JsonFields& fields) { need_activation(fields, "hidden_act", "silu", {"silu", "swish"}); }

/// A window that is absent has a default; only null switches it off.
void read_window(const JsonFields& fields, int64_t absent, DecoderConfig& config) {
  config.sliding_window = fields.is_null("sliding_window") ? 0 : absent;
  if (fields.has("sliding_window")) config.sliding_window = fields.size("sliding_window", 1, kMaxInt32);
}

/// `is_sliding(layer)`: where the file does not list its layers.
template <class IsSliding>
void read_sliding_layers(const JsonFields& fields, DecoderConfig& config, IsSliding is_sliding) {
  const std::vector<std::string> types = fields.texts("layer_types");
  if (!types.empty() && static_cast<int64_t>(types.size()) != config.num_layers)
    throw Error::data("{} has {} entries, and num_hidden_layers = {}. Correct one of them.", fields.where("layer_types"),
                      types.size(), config.num_layers);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    bool slides = is_sliding(layer);
    if (!types.empty()) {
      const std::string& type = types[static_cast<size_t>(layer)];
      if (type != "full_attention" && type != "sliding_attention")
        throw Error::data("{}: attention of type {} is not there. There are: full_attention, sliding_attention.",
                          fields.where("layer_types"), type);
      slides = type == "sliding_attention";
    }
    config.sliding_layers.push_back(slides);
  }
}

void read_router(const JsonFields& fields, ExpertsConfig& experts) {
  if (experts.per_token > experts.count)
    throw Error::data("{} is above the number of experts, {}. Correct one of them.", fields.where("num_experts_per_tok"),
                      experts.count);
  if (fields.real("router_jitter_noise", 0) != 0)
    throw Error::data("{}: noise on the router's input is not there. Set it to 0.", fields.where("router_jitter_noise"));
  experts.stored_router_loss = fields.real("router_aux_loss_coef", 0.001);
  if (!(experts.stored_router_loss >= 0))
    throw Error::data("{} must be at least 0. Correct it.", fields.where("router_aux_loss_coef"));
  if (fields.boolean("output_router_logits", false)) experts.router_loss = experts.stored_router_loss;
}

// ---- the families ----------------------------------------------------------

void read_llama(const JsonFields& fields, DecoderConfig& config) {
  need_silu(fields);
  if (fields.integer("pretraining_tp", 1) != 1)
    throw Error::data("{}: products in slices are not there. Set it to 1: the function is the same up to rounding.",
                      fields.where("pretraining_tp"));
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.mlp_bias = fields.boolean("mlp_bias", false);
}

void read_qwen_window(const JsonFields& fields, DecoderConfig& config) {
  if (fields.boolean("use_sliding_window", false)) read_window(fields, 4096, config);
  const int64_t first = fields.integer("max_window_layers", 28);
  read_sliding_layers(fields, config, [&](int64_t layer) { return config.sliding_window > 0 && layer >= first; });
  for (const bool slides : config.sliding_layers)
    if (slides && config.sliding_window == 0)
      throw Error::data("{}: a layer with a window needs use_sliding_window = true and a sliding_window. Correct one of them.",
                        fields.where("layer_types"));
}

void read_qwen2(const JsonFields& fields, DecoderConfig& config) {
  need_silu(fields);
  config.qkv_bias = true;
  read_qwen_window(fields, config);
}

void read_qwen3(const JsonFields& fields, DecoderConfig& config) {
  need_silu(fields);
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.qk_norm = true;
  read_qwen_window(fields, config);
}

void read_mistral(const JsonFields& fields, DecoderConfig& config) {
  need_silu(fields);
  read_window(fields, 4096, config);
}

void read_gemma(const JsonFields& fields, DecoderConfig& config) {
  need_activation(fields, "hidden_activation", "gelu_pytorch_tanh", {"gelu_pytorch_tanh"});
  if (fields.boolean("use_bidirectional_attention", false))
    throw Error::data("{}: attention to what follows is not there. Use a causal language model.",
                      fields.where("use_bidirectional_attention"));
  config.norm = NormKind::RmsPlusOne;
  config.post_norms = true;
  config.activation = "gelu_tanh";
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
  config.attention_scale = 1 / std::sqrt(fields.positive("query_pre_attn_scalar", 256));
  read_window(fields, 4096, config);
}

/// Null switches a cap off; `absent` 0: so does a missing key.
double read_cap(const JsonFields& fields, const std::string& key, double absent) {
  if (fields.is_null(key) || (!fields.has(key) && absent == 0)) return 0;
  return fields.positive(key, absent);
}

void read_gemma2(const JsonFields& fields, DecoderConfig& config) {
  read_gemma(fields, config);
  config.attention_softcap = read_cap(fields, "attn_logit_softcapping", 50);
  config.logit_softcap = read_cap(fields, "final_logit_softcapping", 30);
  read_sliding_layers(fields, config, [](int64_t layer) { return layer % 2 == 0; });
}

void read_gemma3(const JsonFields& fields, DecoderConfig& config) {
  read_gemma(fields, config);
  config.qk_norm = true;
  config.attention_softcap = read_cap(fields, "attn_logit_softcapping", 0);
  config.logit_softcap = read_cap(fields, "final_logit_softcapping", 0);
  if (config.local_rope_theta == 0) config.local_rope_theta = fields.positive("rope_local_base_freq", 10000);
  const char* key = fields.has("sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
  const int64_t pattern = fields.size(key, 6, kMaxLayers);
  read_sliding_layers(fields, config, [&](int64_t layer) { return (layer + 1) % pattern != 0; });
}

void read_phi3(const JsonFields& fields, DecoderConfig& config) {
  need_silu(fields);
  config.fused_projections = true;
  config.residual_dropout = read_probability(fields, "resid_pdrop", 0);
  read_window(fields, 0, config);
}

void read_gpt2(const JsonFields& fields, DecoderConfig& config) {
  need_activation(fields, "activation_function", "gelu_new", {"gelu_new", "gelu_pytorch_tanh"});
  for (const auto& [key, wanted] : {std::pair{"scale_attn_weights", true}, {"scale_attn_by_inverse_layer_idx", false},
                                    {"add_cross_attention", false}})
    if (fields.boolean(key, wanted) != wanted)
      throw Error::data("{}: that attention is not there. Use a model that has it {}.", fields.where(key), wanted);
  config.norm = NormKind::LayerNorm;
  config.rms_norm_eps = fields.positive("layer_norm_epsilon", 1e-5);
  config.activation = "gelu_tanh";
  config.gated_mlp = false;
  config.learned_positions = config.transposed_weights = true;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", true);
  config.attention_dropout = read_probability(fields, "attn_pdrop", 0.1);
  config.residual_dropout = read_probability(fields, "resid_pdrop", 0.1);
  config.embedding_dropout = read_probability(fields, "embd_pdrop", 0.1);
}

void read_mixtral(const JsonFields& fields, DecoderConfig& config) {
  need_silu(fields);
  read_window(fields, 0, config);
  config.experts = {.count = fields.size("num_local_experts", 8, kMaxWidth),
                    .per_token = fields.size("num_experts_per_tok", 2, kMaxWidth),
                    .width = config.intermediate_size,
                    .sparse_layers = std::vector<bool>(static_cast<size_t>(config.num_layers), true)};
  read_router(fields, config.experts);
}

void read_qwen3_moe(const JsonFields& fields, DecoderConfig& config) {
  need_silu(fields);
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.qk_norm = true;
  if (fields.boolean("use_sliding_window", false)) read_window(fields, 4096, config);
  ExpertsConfig& experts = config.experts;
  experts.count = fields.size(fields.has("num_experts") ? "num_experts" : "num_local_experts", 128, kMaxWidth);
  experts.per_token = fields.size("num_experts_per_tok", 8, kMaxWidth);
  experts.width = fields.size("moe_intermediate_size", 768, kMaxWidth);
  experts.normalise = fields.boolean("norm_topk_prob", false);
  const std::vector<int64_t> dense = fields.integers("mlp_only_layers");
  const int64_t step = fields.size("decoder_sparse_step", 1, kMaxLayers);
  for (int64_t layer = 0; layer < config.num_layers; ++layer)
    experts.sparse_layers.push_back(std::find(dense.begin(), dense.end(), layer) == dense.end() && (layer + 1) % step == 0);
  read_router(fields, experts);
}

constexpr std::array kFamilies{
    Family{"llama", "LlamaForCausalLM", 32000, 4096, 11008, 32, 32, 0, 0, 2048, 1e-6, 10000, true, read_llama},
    Family{"qwen2", "Qwen2ForCausalLM", 151936, 4096, 22016, 32, 32, 32, 0, 32768, 1e-6, 10000, true, read_qwen2},
    Family{"qwen3", "Qwen3ForCausalLM", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e-6, 10000, true, read_qwen3},
    Family{"mistral", "MistralForCausalLM", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e-6, 10000, false, read_mistral},
    Family{"gemma2", "Gemma2ForCausalLM", 256000, 2304, 9216, 26, 8, 4, 256, 8192, 1e-6, 10000, false, read_gemma2},
    Family{"gemma3_text", "Gemma3ForCausalLM", 262208, 2304, 9216, 26, 8, 4, 256, 131072, 1e-6, 1e6, false, read_gemma3},
    Family{"phi3", "Phi3ForCausalLM", 32064, 3072, 8192, 32, 32, 0, 0, 4096, 1e-5, 10000, false, read_phi3},
    Family{"gpt2", "GPT2LMHeadModel", 50257, 768, 0, 12, 12, 0, 0, 1024, 1e-5, 10000, false, read_gpt2},
    Family{"mixtral", "MixtralForCausalLM", 32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e-5, 1e6, false, read_mixtral},
    Family{"qwen3_moe", "Qwen3MoeForCausalLM", 151936, 2048, 6144, 24, 32, 4, 0, 32768, 1e-6, 10000, false, read_qwen3_moe},
};

// ---- what all have ---------------------------------------------------------

struct SizeKeys {
  const char *hidden, *intermediate, *layers, *positions, *heads;
};
constexpr SizeKeys kKeys{"hidden_size", "intermediate_size", "num_hidden_layers", "max_position_embeddings",
                         "num_attention_heads"};
constexpr SizeKeys kGpt2Keys{"n_embd", "n_inner", "n_layer", "n_positions", "n_head"};

void read_sizes(const JsonFields& fields, const Family& family, DecoderConfig& config) {
  const SizeKeys& keys = family.model_type == "gpt2" ? kGpt2Keys : kKeys;
  config.hidden_size = fields.size(keys.hidden, family.hidden_size, kMaxWidth);
  const int64_t intermediate = family.intermediate_size > 0 ? family.intermediate_size : 4 * config.hidden_size;
  config.intermediate_size = fields.size(keys.intermediate, intermediate, 4 * kMaxWidth);
  config.num_layers = fields.size(keys.layers, family.num_layers, kMaxLayers);
  config.vocab_size = fields.size("vocab_size", family.vocab_size, kMaxInt32);
  config.max_position_embeddings = fields.size(keys.positions, family.max_positions, kMaxInt32);
  config.num_heads = fields.size(keys.heads, family.num_heads, kMaxWidth);

  const bool kv_as_heads = family.num_kv_heads == 0 || fields.is_null("num_key_value_heads");
  config.num_kv_heads =
      fields.size("num_key_value_heads", kv_as_heads ? config.num_heads : family.num_kv_heads, kMaxWidth);
  if (config.num_heads % config.num_kv_heads != 0)
    throw Error::data("{} does not divide num_attention_heads = {}. Correct one of them.",
                      fields.where("num_key_value_heads"), config.num_heads);

  const bool divided = family.head_dim == 0 || fields.is_null("head_dim");
  if (divided && !fields.has("head_dim") && config.hidden_size % config.num_heads != 0)
    throw Error::data("{} is not a multiple of {} = {} and head_dim is not given. Correct one of them.",
                      fields.where(keys.hidden), keys.heads, config.num_heads);
  config.head_dim =
      fields.size("head_dim", divided ? config.hidden_size / config.num_heads : family.head_dim, kMaxWidth);
  if (config.head_dim % 2 != 0)
    throw Error::data("{}: the width of a head is {}, and the rotary embedding needs an even one. Correct it.",
                      fields.where("head_dim"), config.head_dim);
}

}  // namespace

std::span<const Family> families() { return kFamilies; }

DecoderConfig read_family(const JsonFields& fields, const Family& family) {
  DecoderConfig config;
  config.model_type = family.model_type;
  config.architecture = family.architecture;
  refuse_quantised(fields);
  read_sizes(fields, family, config);
  read_rope(fields, family.rope_theta, config);
  config.rms_norm_eps = fields.positive("rms_norm_eps", family.rms_norm_eps);
  config.attention_dropout = read_probability(fields, "attention_dropout", 0);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  family.read(fields, config);
  config.pad_token_id = read_pad_token(fields, -1, config.vocab_size);
  config.initializer_range = fields.positive("initializer_range", 0.02);
  config.stored_dtype = read_stored_dtype(fields);
  return config;
}

}  // namespace lockstep::model::detail
