#pragma once

#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/rope.h"
#include "lockstep/model/config.h"
#include "lockstep/model/grain_input.h"
#include "lockstep/model/keep.h"
#include "lockstep/model/products.h"
#include "lockstep/tensor/grad_sink.h"
#include "lockstep/tensor/param_store.h"

#include <ATen/core/Tensor.h>

#include <vector>

/// Dense decoders with pre-norm blocks (llama, qwen2, qwen3) as a stack of blocks with their own backward passes.
/// Letters: T tokens of a grain, H hidden, N query heads, K key/value heads, D head width, M the MLP's width.
/// The residual stream x_TH and its gradient are float32 (float64 when computing in float64), the products run in the
/// store's compute dtype: what autocast over float32 weights does. The store's layout must be that of param_specs().
///
/// One layer (transformers/models/llama/modeling_llama.py; Touvron et al., LLaMA, 2023):
///   q, k, v = rope(qk_norm(norm1(x) Wqkv^T + b));  x_mid = x + attention(q, k, v) Wo^T;
///   x_out = x_mid + (silu(norm2(x_mid) Wg^T) * (norm2(x_mid) Wu^T)) Wd^T
namespace lockstep::model {

/// What a layer keeps from its forward for its backward. Whatever is cheap to make again from these by an elementwise
/// kernel (normed activations, the gated product) is not kept. With Keep::InputOnly there is only x_TH.
struct LayerSaved {
  at::Tensor x_TH;                      ///< residual stream that entered the layer
  at::Tensor rstd1_T;
  at::Tensor q_TND, k_TKD, v_TKD;       ///< after norms and rope
  at::Tensor q_raw_TND, k_raw_TKD;      ///< before q/k norm (qwen3), else undefined
  at::Tensor q_rstd, k_rstd;            ///< [T * N], [T * K]
  kernels::AttentionSaved attention;
  at::Tensor x_mid_TH;                  ///< residual stream after attention
  at::Tensor rstd2_T;
  at::Tensor gate_TM, up_TM;
};

struct DecoderOptions {
  double attention_dropout = 0;         ///< 0 in evaluation
  uint64_t seed = 0;                    ///< of the dropout masks
};

/// Immutable after construction; all functions are const and safe from many threads, one grain per call.
class Decoder {
 public:
  /// `max_positions`: rows of the rotary table (the longest document).
  Decoder(DecoderConfig config, int64_t max_positions, at::ScalarType compute_dtype, DecoderOptions options = {});

  /// Block 0: embedding; 1..L: layers; L + 1: final norm and head. Names as in the checkpoint; a tied head shares
  /// "model.embed_tokens.weight". With config.num_labels the head is "score.weight" of ...ForSequenceClassification.
  static std::vector<tensor::ParamSpec> param_specs(const DecoderConfig& config);

  const DecoderConfig& config() const { return config_; }
  int num_layers() const { return static_cast<int>(config_.num_layers); }

  at::Tensor embed_forward(const tensor::ParamStore& params, const GrainInput& grain) const;
  void embed_backward(const tensor::ParamStore& params, const GrainInput& grain, const at::Tensor& dx_TH,
                      tensor::GradSink& sink) const;

  /// `layer` is 0..L-1. x_TH is consumed: kept in `saved`, or updated in place where nothing needs the old value.
  at::Tensor layer_forward(const tensor::ParamStore& params, int layer, at::Tensor x_TH, const GrainInput& grain,
                           Keep keep, LayerSaved& saved) const;
  /// dx_TH: gradient of the layer's output, becomes that of its input. `saved` is released.
  void layer_backward(const tensor::ParamStore& params, int layer, at::Tensor& dx_TH, const GrainInput& grain,
                      LayerSaved saved, tensor::GradSink& sink) const;

  /// Parameters of the head, for loss/: final norm and the matrix (the embedding when tied, score when classifying).
  tensor::ParamId final_norm_id() const { return final_norm_id_; }
  tensor::ParamId head_weight_id() const { return head_weight_id_; }

  /// Upper bound of the contributions to one element of each parameter in an update (see exact.h): one per grain for
  /// most, one per head chunk for the head's matrix, one per token for the embedding; a tied matrix has both uses.
  /// `num_head_chunks`: over all grains of the update (a classifier's head: the number of grains). At least 1.
  /// [num_params]
  std::vector<int64_t> contributions(int64_t num_grains, int64_t num_tokens, int64_t num_head_chunks) const;

  /// Bytes that one grain of `num_tokens` tokens keeps per layer.
  int64_t saved_bytes_per_layer(int64_t num_tokens, Keep keep) const;

 private:
  struct Layer {
    Linear q, k, v, o, gate, up, down;
    tensor::ParamId norm1 = -1, norm2 = -1, q_norm = -1, k_norm = -1;
  };

  /// attention(norm1(x)) Wo^T; fills `saved` up to the attention.
  at::Tensor attention_delta(const tensor::ParamStore& params, int layer, const at::Tensor& x_TH,
                             const GrainInput& grain, LayerSaved& saved) const;
  /// x_TH += delta_TH, then the two products into the MLP's width; fills the rest of `saved` but x_mid_TH.
  void gate_and_up(const tensor::ParamStore& params, int layer, at::Tensor& x_TH, const at::Tensor& delta_TH,
                   LayerSaved& saved) const;
  void mlp_backward(const tensor::ParamStore& params, int layer, at::Tensor& dx_TH, LayerSaved& saved,
                    tensor::GradSink& sink) const;
  void attention_backward(const tensor::ParamStore& params, int layer, at::Tensor& dx_TH, const GrainInput& grain,
                          LayerSaved& saved, tensor::GradSink& sink) const;
  kernels::AttentionConfig attention_config(int layer, const GrainInput& grain) const;
  at::ScalarType stream_dtype() const;

  DecoderConfig config_;
  at::ScalarType compute_dtype_;
  DecoderOptions options_;
  kernels::RopeTable rope_;
  std::vector<Layer> layers_;
  int num_params_ = 0;
  tensor::ParamId embed_id_ = -1, final_norm_id_ = -1, head_weight_id_ = -1;
};

}  // namespace lockstep::model
