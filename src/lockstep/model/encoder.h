#pragma once

#include "lockstep/kernels/activation.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/model/encoder_config.h"
#include "lockstep/model/grain_input.h"
#include "lockstep/model/keep.h"
#include "lockstep/model/products.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

/// Encoders with post-norm blocks (bert, roberta, distilbert) as a stack of blocks with their own backward passes.
/// Letters: T tokens of a grain, H hidden, N heads, D head width, M the MLP's width.
/// The residual stream x_TH and its gradient are float32 (float64 when computing in float64), the products run in the
/// store's compute dtype: what autocast over float32 weights does. The store's layout must be that of param_specs().
///
/// Embedding (transformers/models/bert/modeling_bert.py; Devlin et al., BERT, 2019):
///   x = dropout(norm(word[token] + type[token type] + position[place]))
/// One layer, attention over the whole document:
///   m = norm1(x + dropout(attention(x Wq^T + b, x Wk^T + b, x Wv^T + b) Wo^T + b))
///   x_out = norm2(m + dropout(act(m Wu^T + b) Wd^T + b))
namespace lockstep::model {

/// What a layer keeps from its forward for its backward. With Keep::InputOnly there is only x_TH.
struct EncoderSaved {
  at::Tensor x_TH;                      ///< residual stream that entered the layer
  at::Tensor q_TND, k_TND, v_TND;
  kernels::AttentionSaved attention;
  at::Tensor sum1_TH, sum2_TH;          ///< what the two norms saw
  kernels::LayerNormMoments moments1, moments2;
  at::Tensor h_TM;                      ///< before the activation
};

/// Dropout probabilities; all 0 in evaluation.
struct EncoderOptions {
  double hidden_dropout = 0;            ///< embedding and the output of each sublayer
  double attention_dropout = 0;         ///< attention probabilities
  uint64_t seed = 0;                    ///< of the masks
};

/// Immutable after construction; all functions are const and safe from many threads, one grain per call.
class Encoder {
 public:
  Encoder(EncoderConfig config, at::ScalarType compute_dtype, EncoderOptions options = {});

  /// Of ...ForSequenceClassification with config.num_labels classes, named as transformers saves it. Block 0:
  /// embedding; 1..L: layers; L + 1: pooler and head.
  static std::vector<tensor::ParamSpec> param_specs(const EncoderConfig& config);

  const EncoderConfig& config() const { return config_; }
  int num_layers() const { return static_cast<int>(config_.num_layers); }

  /// Throws Error{Data} naming the sample when a document is longer than the position table.
  at::Tensor embed_forward(const tensor::ParamStore& params, const GrainInput& grain) const;
  /// Makes the sums of embeddings again from the tables, which do not change within an update.
  void embed_backward(const tensor::ParamStore& params, const GrainInput& grain, const at::Tensor& dx_TH,
                      tensor::GradSink& sink) const;

  /// `layer` is 0..L-1. x_TH is consumed: kept in `saved`, or updated in place where nothing needs the old value.
  at::Tensor layer_forward(const tensor::ParamStore& params, int layer, at::Tensor x_TH, const GrainInput& grain,
                           Keep keep, EncoderSaved& saved) const;
  /// dx_TH: gradient of the layer's output, becomes that of its input. `saved` is released.
  void layer_backward(const tensor::ParamStore& params, int layer, at::Tensor& dx_TH, const GrainInput& grain,
                      EncoderSaved saved, tensor::GradSink& sink) const;

  /// Upper bound of the contributions to one element of each parameter in an update (see exact.h): one per token for
  /// the word table, one per document for the position table, one per grain for everything else, the head included.
  /// At least 1. [num_params]
  std::vector<int64_t> contributions(int64_t num_grains, int64_t num_tokens, int64_t num_docs) const;

  /// Bytes that one grain of `num_tokens` tokens keeps per layer.
  int64_t saved_bytes_per_layer(int64_t num_tokens, Keep keep) const;

 private:
  struct Norm {
    tensor::ParamId weight = -1, bias = -1;
  };
  struct Layer {
    Linear q, k, v, o, up, down;
    Norm norm1, norm2;
  };

  /// Rows of the position table.
  at::Tensor places(const GrainInput& grain) const;
  at::Tensor sum_of_embeddings(const tensor::ParamStore& params, const GrainInput& grain) const;
  /// The whole layer; x_TH may be changed. Fills `saved` but for x_TH.
  at::Tensor run_layer(const tensor::ParamStore& params, int layer, at::Tensor x_TH, const GrainInput& grain,
                       EncoderSaved& saved) const;
  void attention_backward(const tensor::ParamStore& params, int layer, at::Tensor& dx_TH, const GrainInput& grain,
                          EncoderSaved& saved, tensor::GradSink& sink) const;
  void mlp_backward(const tensor::ParamStore& params, int layer, at::Tensor& dx_TH, const GrainInput& grain,
                    EncoderSaved& saved, tensor::GradSink& sink) const;
  /// dx_TH from the gradient of the norm's output to that of its input.
  void norm_backward(const tensor::ParamStore& params, const Norm& norm, const at::Tensor& sum_TH,
                     const kernels::LayerNormMoments& moments, at::Tensor& dx_TH, tensor::GradSink& sink) const;
  at::Tensor drop(const at::Tensor& x_TH, at::ScalarType dtype, const GrainInput& grain, int module, int place) const;
  kernels::AttentionConfig attention_config(int layer, const GrainInput& grain) const;
  at::ScalarType stream_dtype() const;

  EncoderConfig config_;
  at::ScalarType compute_dtype_;
  EncoderOptions options_;
  kernels::Activation activation_;
  std::vector<Layer> layers_;
  int num_params_ = 0;
  tensor::ParamId word_id_ = -1, position_id_ = -1, type_id_ = -1;  ///< type_id_ -1: no such table
  Norm embed_norm_;
};

}  // namespace lockstep::model
