#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// What config.json says about a decoder, in one spelling. Torch-free.
namespace lockstep::model {

struct RopeScaling {
  std::string type = "default";        ///< "default" or "llama3"; others are refused by name when read
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;
  int64_t original_max_position_embeddings = 0;
};

struct DecoderConfig {
  std::string model_type;              ///< llama, qwen2, qwen3
  std::string architecture;            ///< e.g. LlamaForCausalLM
  int64_t hidden_size = 0, intermediate_size = 0, num_layers = 0, vocab_size = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6, rope_theta = 10000;
  double attention_dropout = 0;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false;                ///< RMSNorm over head_dim on queries and keys, before the rotation
  bool tie_word_embeddings = false;
  int64_t pad_token_id = -1;           ///< -1: none. As an input this token sends no gradient to its embedding:
                                       ///< transformers makes nn.Embedding with it as padding_idx
  RopeScaling rope;
  double initializer_range = 0.02;     ///< standard deviation of a new head
  int64_t num_labels = 0;              ///< above 0: a sequence classifier, whose head is score.weight [num_labels, H]
  std::string stored_dtype;            ///< torch_dtype / dtype of the file: float32, bfloat16, float16 or ""
};

/// Reads FOLDER/config.json in the classic spelling (rope_theta, rope_scaling, torch_dtype) and that of transformers 5
/// (rope_parameters, dtype). A missing key has the default of transformers for that model type. Throws Error{Data}
/// naming file, key, value and remedy; an architecture that is not there is refused with the nearest one and the list
/// of those that are, and so is everything that would compute another function than the one trained here.
DecoderConfig read_decoder_config(const std::filesystem::path& folder);
/// The same for another file name in the folder.
DecoderConfig read_decoder_config(const std::filesystem::path& folder, const std::string& file_name);
/// For sequence classification: also takes ...ForSequenceClassification and bare models. `architecture` becomes
/// ...ForSequenceClassification; num_labels is what the file says (label_fields.h), to be changed by the caller.
DecoderConfig read_decoder_classifier_config(const std::filesystem::path& folder,
                                             const std::string& file_name = "config.json");

/// The inverse frequencies of the rotary embedding (head_dim / 2), with llama3 scaling applied
/// (transformers/modeling_rope_utils.py).
std::vector<double> rope_inverse_frequencies(const DecoderConfig& config);

}  // namespace lockstep::model
