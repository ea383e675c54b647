#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

/// What config.json says about a decoder, in one spelling. Torch-free.
namespace lockstep::model {

struct RopeScaling {
  std::string type = "default";        ///< default, linear, dynamic, llama3, yarn or longrope
  double factor = 1;
  double low_freq_factor = 1, high_freq_factor = 4;               ///< llama3
  int64_t original_max_position_embeddings = 0;                   ///< what the model was trained on before it was stretched
  double attention_factor = 0;                                    ///< of yarn, longrope; 0: follows from the factor
  double beta_fast = 32, beta_slow = 1, mscale = 0, mscale_all_dim = 0;  ///< yarn
  bool truncate = true;                                           ///< yarn
  std::vector<double> short_factor = {}, long_factor = {};        ///< longrope, one per frequency
};

enum class NormKind : uint8_t {
  Rms,         ///< x * rstd * w
  RmsPlusOne,  ///< x * rstd * (1 + w): gemma
  LayerNorm,   ///< (x - mean) * rstd * w + b: gpt2
};

struct ExpertsConfig {
  int64_t count = 0;                   ///< 0: the MLP is dense everywhere
  int64_t per_token = 0, width = 0;    ///< chosen for each token; of an expert's MLP
  bool normalise = true;               ///< the chosen probabilities are made to sum to 1
  std::vector<bool> sparse_layers = {};  ///< [num_layers]
  double router_loss = 0;              ///< coefficient of the load-balancing loss in training; 0: not computed
  double stored_router_loss = 0;       ///< router_aux_loss_coef of the file, which holds if output_router_logits is true
};

struct DecoderConfig {
  std::string model_type;              ///< the family: llama, gemma2 ...
  std::string architecture;            ///< e.g. LlamaForCausalLM
  int64_t hidden_size = 0, intermediate_size = 0, num_layers = 0, vocab_size = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6, rope_theta = 10000;                 ///< the first one: of every norm, LayerNorms too
  double attention_dropout = 0, residual_dropout = 0, embedding_dropout = 0;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false;                ///< norm over head_dim on queries and keys, before the rotation
  bool tie_word_embeddings = false;
  int64_t pad_token_id = -1;           ///< -1: none. As an input this token sends no gradient to its embedding:
                                       ///< transformers makes nn.Embedding with it as padding_idx
  RopeScaling rope;
  double initializer_range = 0.02;     ///< standard deviation of a new head
  int64_t num_labels = 0;              ///< above 0: a sequence classifier, whose head is score.weight [num_labels, H]
  std::string stored_dtype;            ///< torch_dtype / dtype of the file: float32, bfloat16, float16 or ""

  // What only some families have.
  NormKind norm = NormKind::Rms;
  bool post_norms = false;             ///< a norm also after attention and after the MLP, before the addition
  std::string activation = "silu";     ///< silu or gelu_tanh
  bool gated_mlp = true;               ///< act(gate) * up; false: act(up)
  bool fused_projections = false;      ///< one matrix for q, k and v; a gated MLP: one for gate and up
  bool transposed_weights = false;     ///< projections are stored [in, out] (gpt2's Conv1D)
  bool learned_positions = false;      ///< a table in place of the rotary embedding
  int64_t rotary_dim = 0;              ///< first elements of a head that turn; 0: all
  double local_rope_theta = 0;         ///< above 0: layers with a window turn by it, without scaling (gemma3)
  int64_t sliding_window = 0;          ///< above 0: a token sees itself and window - 1 before it
  std::vector<bool> sliding_layers;    ///< [num_layers] where only some have the window; empty: all
  double attention_scale = 0;          ///< 0: 1 / sqrt(head_dim)
  double attention_softcap = 0, logit_softcap = 0;  ///< 0: none
  double embedding_scale = 1;
  ExpertsConfig experts;

  /// The window of a layer; 0: it sees the whole document.
  int64_t window(int64_t layer) const {
    return sliding_layers.empty() || sliding_layers[static_cast<size_t>(layer)] ? sliding_window : 0;
  }
  bool is_sparse(int64_t layer) const {
    return experts.count > 0 && experts.sparse_layers[static_cast<size_t>(layer)];
  }
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

/// model_type of every family that `read_decoder_config` takes, in the order of the documentation.
std::vector<std::string> decoder_families();

/// The rotary embedding of a document (transformers/modeling_rope_utils.py).
struct RopeFrequencies {
  std::vector<double> inverse;         ///< one per pair of elements that turn
  double attention_scaling = 1;        ///< multiplies sines and cosines
};
/// `length`: tokens of the document; dynamic and longrope change with it. `local`: of a layer with a window.
RopeFrequencies rope_frequencies(const DecoderConfig& config, bool local = false, int64_t length = 1);
/// The longest document that turns as one of a single token does; INT64_MAX where the length never matters.
int64_t rope_stable_length(const DecoderConfig& config);
/// Of rope_frequencies().
std::vector<double> rope_inverse_frequencies(const DecoderConfig& config);

}  // namespace lockstep::model
