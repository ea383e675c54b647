#pragma once

#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/model/config.h"
#include "lockstep/model/experts.h"
#include "lockstep/model/grain_input.h"
#include "lockstep/model/keep.h"
#include "lockstep/model/norms.h"
#include "lockstep/model/products.h"
#include "lockstep/model/rotary.h"
#include "lockstep/tensor/grad_sink.h"
#include "lockstep/tensor/param_store.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

/// Decoders with pre-norm blocks as a stack of blocks with their own backward passes; what a family adds to llama or
/// changes in it is said by DecoderConfig (docs/families.md).
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
  NormState norm1;
  at::Tensor q_TND, k_TKD, v_TKD;       ///< after norms and rope; parts of one tensor where the projection is one
  at::Tensor q_raw_TND, k_raw_TKD;      ///< before q/k norm (qwen3), else undefined
  NormState q_norm, k_norm;             ///< [T * N], [T * K]
  kernels::AttentionSaved attention;
  at::Tensor branch1_TH, branch2_TH;    ///< post_norms: what attention and MLP gave, before their norms
  NormState post1, post2;
  at::Tensor x_mid_TH;                  ///< residual stream after attention
  NormState norm2;
  at::Tensor gate_TM, up_TM;            ///< gate: undefined where the MLP has none
  ExpertsSaved experts;                 ///< in place of the two, where the MLP is sparse
  RouterStatistics router;              ///< kept whatever Keep says
  std::vector<double> router_slope_E;   ///< set between the passes where the router loss is trained
};

/// All 0 in evaluation.
struct DecoderOptions {
  double attention_dropout = 0;
  uint64_t seed = 0;                    ///< of the dropout masks
  double residual_dropout = 0, embedding_dropout = 0;
};
/// The dropouts of config.json.
DecoderOptions training_options(const DecoderConfig& config, uint64_t seed);

/// Immutable after construction; all functions are const and safe from many threads, one grain per call.
class Decoder {
 public:
  /// `max_positions`: rows of the rotary table (the longest document).
  Decoder(DecoderConfig config, int64_t max_positions, at::ScalarType compute_dtype, DecoderOptions options = {});

  /// Block 0: embedding; 1..L: layers; L + 1: final norm and head. Names as in the checkpoint; a tied head shares the
  /// embedding's matrix. With config.num_labels the head is "score.weight" of ...ForSequenceClassification.
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
  const Norm& final_norm() const { return final_norm_; }
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
    Linear q, k, v, qkv, o, gate, up, gate_up, down;  // qkv, gate_up: where they are one matrix, in place of the others
    Norm norm1, norm2, post1, post2, q_norm, k_norm;  // weight -1: none
    ExpertsIds experts;
  };
  const Layer& layer_of(int layer) const { return layers_[static_cast<size_t>(layer)]; }
  /// Ids of the modules named; -1 for names that are empty.
  Layer find_layer(const std::map<std::string, tensor::ParamId>& ids, int64_t layer) const;

  const Rotary& rotary(int layer) const {
    return config_.local_rope_theta > 0 && config_.window(layer) > 0 ? local_rotary_ : rotary_;
  }
  /// Queries, keys and values of y_TH, as `saved` keeps them before norms and rope.
  void project_qkv(const tensor::ParamStore& params, int layer, const at::Tensor& y_TH, LayerSaved& saved) const;
  at::Tensor backward_qkv(const tensor::ParamStore& params, int layer, const kernels::AttentionGrads& d,
                          const at::Tensor& y_TH, tensor::GradSink& sink) const;
  /// What a sublayer adds to the stream: its post-norm and dropout, where there are such.
  at::Tensor end_branch(const tensor::ParamStore& params, const Norm& post, at::Tensor branch_TH, NormState& state,
                        at::Tensor& kept_TH, const GrainInput& grain, int layer, int place) const;
  /// The gradient of branch_TH, in the compute dtype.
  at::Tensor branch_backward(const tensor::ParamStore& params, const Norm& post, const at::Tensor& dx_TH, const NormState& state,
                             at::Tensor& kept_TH, const GrainInput& grain, int layer, int place, tensor::GradSink& sink) const;
  at::Tensor drop(const at::Tensor& x_TH, at::ScalarType dtype, const GrainInput& grain, double probability, int module,
                  int place) const;
  at::Tensor activate(const LayerSaved& saved) const;
  int64_t mlp_bytes_per_token(int64_t stream, int64_t compute) const;
  /// Gradient of what norm2 gave, in the stream's dtype, from that of the MLP's result.
  at::Tensor dense_mlp_backward(const tensor::ParamStore& params, int layer, const at::Tensor& dout_TH, LayerSaved& saved,
                                tensor::GradSink& sink) const;

  /// attention(norm1(x)) Wo^T; fills `saved` up to the attention.
  at::Tensor attention_delta(const tensor::ParamStore& params, int layer, const at::Tensor& x_TH,
                             const GrainInput& grain, LayerSaved& saved) const;
  /// x_TH += delta_TH, then the two products into the MLP's width; fills the rest of `saved` but x_mid_TH.
  void gate_and_up(const tensor::ParamStore& params, int layer, at::Tensor& x_TH, const at::Tensor& delta_TH,
                   LayerSaved& saved) const;
  /// act(gate) * up Wd^T.
  at::Tensor mlp_delta(const tensor::ParamStore& params, int layer, const GrainInput& grain, LayerSaved& saved) const;
  void mlp_backward(const tensor::ParamStore& params, int layer, at::Tensor& dx_TH, const GrainInput& grain,
                    LayerSaved& saved, tensor::GradSink& sink) const;
  void attention_backward(const tensor::ParamStore& params, int layer, at::Tensor& dx_TH, const GrainInput& grain,
                          LayerSaved& saved, tensor::GradSink& sink) const;
  /// Attention of every document; in generation its caches grow by its tokens, and see decoding.h.
  kernels::AttentionSaved attend(int layer, const GrainInput& grain, const LayerSaved& saved) const;
  kernels::AttentionConfig attention_config(int layer, const GrainInput& grain) const;
  at::ScalarType stream_dtype() const;

  DecoderConfig config_;
  at::ScalarType compute_dtype_;
  DecoderOptions options_;
  kernels::Gate gate_ = kernels::Gate::Silu;
  Rotary rotary_, local_rotary_;
  std::vector<Layer> layers_;
  int num_params_ = 0;
  tensor::ParamId embed_id_ = -1, position_id_ = -1, head_weight_id_ = -1;
  Norm final_norm_;
};

}  // namespace lockstep::model
