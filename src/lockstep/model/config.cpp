#include "lockstep/model/config.h"

#include "lockstep/base/error.h"
#include "lockstep/model/config_parts.h"
#include "lockstep/model/json_fields.h"
#include "lockstep/model/label_fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

namespace lockstep::model {
namespace {

constexpr int64_t kMaxWidth = 1 << 20;
constexpr int64_t kMaxLayers = 1 << 14;
constexpr int64_t kMaxInt32 = INT32_MAX;  // token ids and positions are int32

/// What a key has when config.json lacks it: transformers/models/<type>/configuration_<type>.py (5.24).
struct Family {
  std::string_view model_type, architecture;
  int64_t vocab_size, intermediate_size, max_positions;
  int64_t head_dim;      // 0: hidden_size / num_attention_heads
  int64_t num_kv_heads;  // 0: num_attention_heads
};
constexpr int64_t kHiddenSize = 4096, kNumLayers = 32, kNumHeads = 32;
constexpr std::array kFamilies{
    Family{"llama", "LlamaForCausalLM", 32000, 11008, 2048, 0, 0},
    Family{"qwen2", "Qwen2ForCausalLM", 151936, 22016, 32768, 0, 32},
    Family{"qwen3", "Qwen3ForCausalLM", 151936, 22016, 32768, 128, 32},
};

/// `member`: Family::architecture or Family::model_type.
std::string nearest_family(std::string_view wanted, std::string_view Family::*member) {
  std::vector<std::string_view> known;
  for (const Family& family : kFamilies) known.push_back(family.*member);
  return detail::nearest_and_all(wanted, known);
}

enum class Use { CausalLm, Classification };

/// "LlamaForSequenceClassification" of "LlamaForCausalLM".
std::string classifier_of(const Family& family) {
  return std::string(family.architecture.substr(0, family.architecture.find("For"))) + "ForSequenceClassification";
}

bool is_architecture(const std::string& name, const Family& family, Use use) {
  if (name == family.architecture) return true;
  const std::string bare = std::string(family.architecture.substr(0, family.architecture.find("For"))) + "Model";
  return use == Use::Classification && (name == classifier_of(family) || name == bare);
}

const Family& find_family(const JsonFields& fields, Use use) {
  const std::vector<std::string> architectures = fields.texts("architectures");
  const std::string model_type = fields.text("model_type", "");
  if (!architectures.empty()) {
    const auto by_architecture = [&](const Family& f) { return is_architecture(architectures[0], f, use); };
    const auto* it = std::find_if(kFamilies.begin(), kFamilies.end(), by_architecture);
    if (it == kFamilies.end())
      throw Error::data("{}: this architecture is not there. {}", fields.where("architectures"),
                        nearest_family(architectures[0], &Family::architecture));
    if (!model_type.empty() && model_type != it->model_type)
      throw Error::data("{} contradicts {}, whose model_type is {}. Correct one of them.", fields.where("model_type"),
                        it->architecture, it->model_type);
    return *it;
  }
  if (model_type.empty())
    throw Error::data("{}, and model_type is absent too: the file does not say which model this is. "
                      "Give the folder of a causal language model.",
                      fields.where("architectures"));
  const auto* it = std::find_if(kFamilies.begin(), kFamilies.end(),
                                [&](const Family& f) { return f.model_type == model_type; });
  if (it == kFamilies.end())
    throw Error::data("{}: this model type is not there. {}", fields.where("model_type"),
                      nearest_family(model_type, &Family::model_type));
  return *it;
}

void read_sizes(const JsonFields& fields, const Family& family, DecoderConfig& config) {
  config.hidden_size = fields.size("hidden_size", kHiddenSize, kMaxWidth);
  config.intermediate_size = fields.size("intermediate_size", family.intermediate_size, kMaxWidth);
  config.num_layers = fields.size("num_hidden_layers", kNumLayers, kMaxLayers);
  config.vocab_size = fields.size("vocab_size", family.vocab_size, kMaxInt32);
  config.max_position_embeddings = fields.size("max_position_embeddings", family.max_positions, kMaxInt32);
  config.num_heads = fields.size("num_attention_heads", kNumHeads, kMaxWidth);

  const bool kv_as_heads = family.num_kv_heads == 0 || fields.is_null("num_key_value_heads");
  config.num_kv_heads =
      fields.size("num_key_value_heads", kv_as_heads ? config.num_heads : family.num_kv_heads, kMaxWidth);
  if (config.num_heads % config.num_kv_heads != 0)
    throw Error::data("{} does not divide num_attention_heads = {}. Correct one of them.",
                      fields.where("num_key_value_heads"), config.num_heads);

  const bool divided = family.head_dim == 0 || fields.is_null("head_dim");
  if (divided && !fields.has("head_dim") && config.hidden_size % config.num_heads != 0)
    throw Error::data("{} is not a multiple of num_attention_heads = {} and head_dim is not given. "
                      "Correct one of them.",
                      fields.where("hidden_size"), config.num_heads);
  config.head_dim =
      fields.size("head_dim", divided ? config.hidden_size / config.num_heads : family.head_dim, kMaxWidth);
  if (config.head_dim % 2 != 0)
    throw Error::data("{}: the width of a head is {}, and the rotary embedding needs an even one. Correct it.",
                      fields.where("head_dim"), config.head_dim);
}

/// Newer files keep everything about rope in rope_parameters; older ones have rope_theta and, perhaps, rope_scaling.
void read_rope(const JsonFields& fields, DecoderConfig& config) {
  const JsonFields rope = fields.object(fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling");
  config.rope_theta = rope.positive("rope_theta", fields.positive("rope_theta", 10000));
  const char* type_key = rope.has("rope_type") ? "rope_type" : "type";
  config.rope.type = rope.text(type_key, "default");
  if (rope.real("partial_rotary_factor", fields.real("partial_rotary_factor", 1)) != 1)
    throw Error::data("{}: rotating a part of a head is not there. Use a model that turns whole heads.",
                      (rope.has("partial_rotary_factor") ? rope : fields).where("partial_rotary_factor"));
  if (config.rope.type == "default") return;
  if (config.rope.type != "llama3")
    throw Error::data("{}: this rope scaling is not there. There are: default, llama3.", rope.where(type_key));

  for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    if (!rope.has(key)) throw Error::data("{}: rope scaling llama3 needs it. Add it.", rope.where(key));
  config.rope.factor = rope.positive("factor", 1);
  config.rope.low_freq_factor = rope.positive("low_freq_factor", 1);
  config.rope.high_freq_factor = rope.positive("high_freq_factor", 4);
  config.rope.original_max_position_embeddings = rope.size("original_max_position_embeddings", 1, kMaxInt32);
  if (config.rope.factor < 1) throw Error::data("{} must be at least 1. Correct it.", rope.where("factor"));
  if (config.rope.high_freq_factor <= config.rope.low_freq_factor)
    throw Error::data("{} must be above low_freq_factor = {}. Correct one of them.", rope.where("high_freq_factor"),
                      config.rope.low_freq_factor);
}

void read_biases_and_norms(const JsonFields& fields, DecoderConfig& config) {
  const bool llama = config.model_type == "llama";
  const bool attention_bias = config.model_type != "qwen2" && fields.boolean("attention_bias", false);
  config.qkv_bias = config.model_type == "qwen2" || attention_bias;
  config.output_bias = attention_bias;
  config.mlp_bias = llama && fields.boolean("mlp_bias", false);
  config.qk_norm = config.model_type == "qwen3";
}

/// Everything that makes transformers compute something else than the blocks here do.
void refuse_what_is_not_there(const JsonFields& fields, const DecoderConfig& config) {
  if (const std::string act = fields.text("hidden_act", "silu"); act != "silu" && act != "swish")
    throw Error::data("{}: this activation is not there. There is: silu.", fields.where("hidden_act"));
  if (config.model_type == "llama" && fields.integer("pretraining_tp", 1) != 1)
    throw Error::data("{}: products in slices are not there. Set it to 1: the function is the same up to rounding.",
                      fields.where("pretraining_tp"));
  detail::refuse_quantised(fields);
  if (config.model_type == "llama") return;

  // A window that is absent has a default; only null switches it off.
  const bool slides = fields.boolean("use_sliding_window", false) && !fields.is_null("sliding_window");
  if (fields.has("layer_types")) {
    for (const std::string& type : fields.texts("layer_types"))
      if (type != "full_attention")
        throw Error::data("{}: attention of type {} is not there. There is: full_attention.",
                          fields.where("layer_types"), type);
  } else if (slides && fields.integer("max_window_layers", 28) < config.num_layers) {
    throw Error::data("{} with max_window_layers below num_hidden_layers = {}: sliding windows are not there. "
                      "Use a model with full attention.",
                      fields.where("use_sliding_window"), config.num_layers);
  }
}

DecoderConfig config_of(const JsonFields& fields, const Family& family) {
  DecoderConfig config;
  config.model_type = family.model_type;
  config.architecture = family.architecture;
  read_sizes(fields, family, config);
  read_rope(fields, config);
  read_biases_and_norms(fields, config);
  refuse_what_is_not_there(fields, config);
  config.rms_norm_eps = fields.positive("rms_norm_eps", 1e-6);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  config.pad_token_id = detail::read_pad_token(fields, -1, config.vocab_size);
  config.attention_dropout = detail::read_probability(fields, "attention_dropout", 0);
  config.initializer_range = fields.positive("initializer_range", 0.02);
  config.stored_dtype = detail::read_stored_dtype(fields);
  return config;
}

}  // namespace

DecoderConfig read_decoder_config(const std::filesystem::path& folder) {
  return read_decoder_config(folder, "config.json");
}

DecoderConfig read_decoder_config(const std::filesystem::path& folder, const std::string& file_name) {
  const JsonFields fields = JsonFields::read(folder / file_name);
  return config_of(fields, find_family(fields, Use::CausalLm));
}

DecoderConfig read_decoder_classifier_config(const std::filesystem::path& folder, const std::string& file_name) {
  const JsonFields fields = JsonFields::read(folder / file_name);
  const Family& family = find_family(fields, Use::Classification);
  DecoderConfig config = config_of(fields, family);
  config.architecture = classifier_of(family);
  config.num_labels = read_label_fields(fields).num_labels;
  return config;
}

std::vector<double> rope_inverse_frequencies(const DecoderConfig& config) {
  std::vector<double> out(static_cast<size_t>(config.head_dim / 2));
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = std::pow(config.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
  if (config.rope.type == "default") return out;

  // llama3: long wavelengths are divided by `factor`, short ones kept, those between blended.
  const RopeScaling& rope = config.rope;
  const auto old_context = static_cast<double>(rope.original_max_position_embeddings);
  for (double& frequency : out) {
    const double wavelength = 2 * std::numbers::pi / frequency;
    if (wavelength > old_context / rope.low_freq_factor) {
      frequency /= rope.factor;
    } else if (wavelength >= old_context / rope.high_freq_factor) {
      const double smooth =
          (old_context / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
      frequency = (1 - smooth) * frequency / rope.factor + smooth * frequency;
    }
  }
  return out;
}

}  // namespace lockstep::model
