#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

/// What config.json says about an encoder, in one spelling. Torch-free.
namespace lockstep::model {

struct EncoderConfig {
  std::string model_type;              ///< bert, roberta, distilbert
  std::string architecture;            ///< of the classifier, e.g. BertForSequenceClassification
  std::string prefix;                  ///< of the encoder's parameters in it: "bert."
  int64_t hidden_size = 0, intermediate_size = 0, num_layers = 0, num_heads = 0, vocab_size = 0;
  int64_t max_position_embeddings = 0; ///< rows of the position table
  int64_t type_vocab_size = 0;         ///< rows of the token type table; 0: there is none (distilbert)
  int64_t first_position = 0;          ///< of a document's first token: roberta counts from pad_token_id + 1
  int64_t pad_token_id = -1;           ///< -1: none. As an input this token sends no gradient to its embedding
  std::string activation = "gelu";     ///< gelu, gelu_tanh, relu
  double layer_norm_eps = 1e-12;
  double hidden_dropout = 0.1;         ///< embeddings and the output of each sublayer
  double attention_dropout = 0.1;      ///< attention probabilities
  double classifier_dropout = 0.1;     ///< the head: classifier_dropout, or hidden_dropout_prob where it is null
                                       ///< (bert, roberta); seq_classif_dropout (distilbert)
  double initializer_range = 0.02;     ///< standard deviation of new matrices
  int64_t num_labels = 2;              ///< as the file has it (label_fields.h); the caller may change it
  std::string stored_dtype;            ///< float32, bfloat16, float16 or ""

  int64_t head_dim() const { return hidden_size / num_heads; }
  /// The longest document the position table has room for.
  int64_t max_document_tokens() const { return max_position_embeddings - first_position; }
};

/// True when the file describes one of the encoders here, by model_type or, when that is absent, by architecture.
bool is_encoder_config(const std::filesystem::path& folder, const std::string& file_name = "config.json");

/// Reads FOLDER/FILE_NAME in the classic spelling (torch_dtype) and that of transformers 5 (dtype); distilbert's own
/// names (dim, n_layers, ...) and the general ones. A missing key has the default of transformers 5.24 for that model
/// type. Throws Error{Data} naming file, key, value and remedy; an unknown model type is refused with the nearest one
/// and the list, and so is everything that would compute another function than the one trained here.
EncoderConfig read_encoder_config(const std::filesystem::path& folder, const std::string& file_name = "config.json");

}  // namespace lockstep::model
