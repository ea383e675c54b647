#include "lockstep/model/encoder_config.h"

#include "lockstep/base/error.h"
#include "lockstep/model/config_parts.h"
#include "lockstep/model/json_fields.h"
#include "lockstep/model/label_fields.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

namespace lockstep::model {
namespace {

/// What differs between the families: transformers/models/<type>/configuration_<type>.py (5.24).
struct EncoderFamily {
  std::string_view model_type, architecture_prefix;
  std::string_view hidden_size, intermediate_size, num_layers, num_heads, activation;  // keys
  std::string_view hidden_dropout, attention_dropout;                                  // keys
  int64_t num_layers_absent, pad_token_id;
};
constexpr std::array kEncoderFamilies{
    EncoderFamily{"bert", "Bert", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                  "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", 12, 0},
    EncoderFamily{"roberta", "Roberta", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                  "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", 12, 1},
    EncoderFamily{"distilbert", "DistilBert", "dim", "hidden_dim", "n_layers", "n_heads", "activation", "dropout",
                  "attention_dropout", 6, 0},
};

/// Null when the file names another model or none.
const EncoderFamily* encoder_family_of(const JsonFields& fields) {
  const std::string model_type = fields.text("model_type", "");
  const std::vector<std::string> architectures = fields.texts("architectures");
  const auto fits = [&](const EncoderFamily& family) {
    if (!model_type.empty()) return model_type == family.model_type;
    return !architectures.empty() && architectures[0].starts_with(family.architecture_prefix);
  };
  const auto* it = std::find_if(kEncoderFamilies.begin(), kEncoderFamilies.end(), fits);
  return it == kEncoderFamilies.end() ? nullptr : it;
}

const EncoderFamily& find_encoder_family(const JsonFields& fields) {
  if (const EncoderFamily* family = encoder_family_of(fields)) return *family;
  const std::string model_type = fields.text("model_type", "");
  const std::vector<std::string> architectures = fields.texts("architectures");
  if (model_type.empty() && architectures.empty())
    throw Error::data("{}, and model_type is absent too: the file does not say which model this is. "
                      "Give the folder of an encoder.",
                      fields.where("architectures"));
  std::vector<std::string_view> known;
  for (const EncoderFamily& family : kEncoderFamilies) known.push_back(family.model_type);
  throw Error::data("{}: this encoder is not there. {}",
                    fields.where(model_type.empty() ? "architectures" : "model_type"),
                    detail::nearest_and_all(model_type.empty() ? architectures[0] : model_type, known));
}

/// The family's own key, or the general one that transformers takes too.
std::string key_of(const JsonFields& fields, std::string_view own, const char* general) {
  return fields.has(std::string(own)) || !fields.has(general) ? std::string(own) : general;
}

void read_encoder_sizes(const JsonFields& fields, const EncoderFamily& family, EncoderConfig& config) {
  constexpr int64_t kWidest = 1 << 20, kMostLayers = 1 << 14, kMostRows = INT32_MAX;
  const std::string hidden = key_of(fields, family.hidden_size, "hidden_size");
  config.hidden_size = fields.size(hidden, 768, kWidest);
  config.intermediate_size = fields.size(std::string(family.intermediate_size), 3072, kWidest);
  config.num_layers =
      fields.size(key_of(fields, family.num_layers, "num_hidden_layers"), family.num_layers_absent, kMostLayers);
  config.num_heads = fields.size(key_of(fields, family.num_heads, "num_attention_heads"), 12, kWidest);
  if (config.hidden_size % config.num_heads != 0)
    throw Error::data("{} is not a multiple of the number of heads, {}. Correct one of them.", fields.where(hidden),
                      config.num_heads);
  config.vocab_size = fields.size("vocab_size", family.model_type == "roberta" ? 50265 : 30522, kMostRows);
  config.max_position_embeddings = fields.size("max_position_embeddings", 512, kMostRows);
  if (family.model_type != "distilbert") config.type_vocab_size = fields.size("type_vocab_size", 2, kMostRows);

  config.pad_token_id = detail::read_pad_token(fields, family.pad_token_id, config.vocab_size);
  if (family.model_type != "roberta") return;
  if (config.pad_token_id < 0)
    throw Error::data("{}: roberta's positions begin after it. Set it (roberta-base: 1).", fields.where("pad_token_id"));
  config.first_position = config.pad_token_id + 1;
  if (config.first_position >= config.max_position_embeddings)
    throw Error::data("{}: the positions of tokens begin at pad_token_id + 1 = {}. Correct one of them.",
                      fields.where("max_position_embeddings"), config.first_position);
}

std::string read_activation(const JsonFields& fields, const std::string& key) {
  const std::string name = fields.text(key, "gelu");
  if (name == "gelu" || name == "gelu_python") return "gelu";
  if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") return "gelu_tanh";
  if (name == "relu") return "relu";
  throw Error::data("{}: this activation is not there. There are: gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu.",
                    fields.where(key));
}

/// Everything that makes transformers compute something else than the blocks here do.
void refuse_other_encoders(const JsonFields& fields) {
  detail::refuse_quantised(fields);
  if (fields.text("position_embedding_type", "absolute") != "absolute")
    throw Error::data("{}: relative positions are not there. Use a model with absolute positions.",
                      fields.where("position_embedding_type"));
  if (fields.boolean("is_decoder", false))
    throw Error::data("{}: an encoder with causal attention is not there. Set it to false to train it as an encoder.",
                      fields.where("is_decoder"));
  if (fields.boolean("add_cross_attention", false))
    throw Error::data("{}: cross attention is not there. Use an encoder without it.",
                      fields.where("add_cross_attention"));
}

}  // namespace

bool is_encoder_config(const std::filesystem::path& folder, const std::string& file_name) {
  return encoder_family_of(JsonFields::read(folder / file_name)) != nullptr;
}

EncoderConfig read_encoder_config(const std::filesystem::path& folder, const std::string& file_name) {
  const JsonFields fields = JsonFields::read(folder / file_name);
  const EncoderFamily& family = find_encoder_family(fields);
  refuse_other_encoders(fields);
  EncoderConfig config;
  config.model_type = family.model_type;
  config.architecture = std::string(family.architecture_prefix) + "ForSequenceClassification";
  config.prefix = std::string(family.model_type) + ".";
  read_encoder_sizes(fields, family, config);
  config.activation = read_activation(fields, std::string(family.activation));
  config.hidden_dropout = detail::read_probability(fields, std::string(family.hidden_dropout), 0.1);
  config.attention_dropout = detail::read_probability(fields, std::string(family.attention_dropout), 0.1);
  if (family.model_type == "distilbert") {
    config.classifier_dropout = detail::read_probability(fields, "seq_classif_dropout", 0.2);
  } else {
    config.layer_norm_eps = fields.positive("layer_norm_eps", 1e-12);
    config.classifier_dropout = detail::read_probability(fields, "classifier_dropout", config.hidden_dropout);
  }
  config.initializer_range = fields.positive("initializer_range", 0.02);
  config.num_labels = read_label_fields(fields).num_labels;
  config.stored_dtype = detail::read_stored_dtype(fields);
  return config;
}

}  // namespace lockstep::model
