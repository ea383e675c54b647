#pragma once

#include "lockstep/kernels/activation.h"
#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/norm.h"
#include "lockstep/loss/lm_head.h"
#include "lockstep/model/config.h"
#include "lockstep/model/encoder_config.h"
#include "lockstep/model/grain_input.h"
#include "lockstep/model/products.h"
#include "lockstep/tensor/grad_sink.h"
#include "lockstep/tensor/param_store.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

/// The last block of a sequence classifier: one row of the residual stream per document, the family's head, the loss.
/// Letters: T tokens of the grain, D documents, H hidden, C classes (or regression targets).
/// The last product runs in float32 (float64) on the weights as the store holds them, so that logits are not rounded to
/// bfloat16; everything before it in the store's compute dtype. All functions are pure and safe from many threads.
namespace lockstep::loss {

/// What follows the last layer (transformers 5.24, ...ForSequenceClassification):
///   bert        out(drop(tanh(dense(x[first]))))                  dense is the pooler
///   roberta     out(drop(tanh(dense(drop(x[first])))))
///   distilbert  out(drop(relu(dense(x[first]))))
///   decoders    out(norm(x)[last])                                 no bias; last: the last token that is not padding
struct ClassifierHead {
  model::Linear dense;                  ///< -1: none (decoders)
  kernels::Activation activation = kernels::Activation::Tanh;
  bool drop_before_dense = false;
  model::Linear out;
  tensor::ParamId final_norm_id = -1;   ///< RMSNorm, decoders alone
  double rms_norm_eps = 0;
  int64_t pad_token_id = -1;
  double dropout = 0;                   ///< the family's probability; 0 in evaluation
  uint64_t seed = 0;                    ///< of the masks
  uint32_t module = 0;                  ///< L + 1: names the masks' streams (kernels/dropout.h)
};
/// `layout` is that of Encoder::param_specs(config). `dropout` is config.classifier_dropout; seed 0.
ClassifierHead classifier_head_of(const model::EncoderConfig& config, const tensor::ParamLayout& layout);
/// `layout` is that of Decoder::param_specs(config) with config.num_labels above 0.
ClassifierHead classifier_head_of(const model::DecoderConfig& config, const tensor::ParamLayout& layout);

enum class Problem {
  SingleLabel,   ///< cross entropy; one label per document: the class, or -100 where it has none
  MultiLabel,    ///< binary cross entropy with logits, mean over classes; C labels per document, each from 0 to 1
  Regression,    ///< squared error, mean over targets; C labels per document
};
constexpr int64_t kNoLabel = -100;

/// A loss of the user's: some rows with labels (as below), no others. Fills the loss of each and the gradient of their sum by
/// the logits. Called from many threads.
struct OwnLossInput {
  int64_t num_rows = 0, num_classes = 0;
  std::span<const float> logits;        ///< [num_rows, num_classes]
  std::span<const float> labels;        ///< [num_rows], or [num_rows, num_classes]
};
using OwnLoss = std::function<void(const OwnLossInput& input, std::span<float> losses, std::span<float> gradient)>;

struct ClassifierLoss {
  Problem problem = Problem::SingleLabel;
  /// Single label alone: (1 - e) nll + e mean over classes of -log p (transformers' LabelSmoother).
  double label_smoothing = 0;
  /// In place of the problem's loss; entropy is 0 then. Values that it does not write are NaN.
  std::shared_ptr<const OwnLoss> own = {};
};

/// Sums over documents with a label: `nll` is the loss; `entropy` in nats (single label, else 0); `num_top1` the right
/// answers (single label: the argmax, of equal logits the lowest class; multi label: every class on its side of logit
/// 0; regression: 0); `num_targets` the documents.
struct ClassifierOutput {
  LossSums sums;
  std::vector<double> loss_per_doc;     ///< 0 where a document has no label
  at::Tensor logits_DC;                 ///< float32 (float64)
};

struct ClassifierBackward {
  ClassifierOutput output;
  at::Tensor dx_TH;                     ///< gradient of the residual stream that entered the head (dtype of x_TH)
};
/// Forward and backward of (sum of losses) / divisor. `divisor`: the update's number of documents with a label.
/// `labels`: document by document in the grain's order.
ClassifierBackward classifier_backward(const tensor::ParamStore& params, const ClassifierHead& head,
                                       const at::Tensor& x_TH, const model::GrainInput& grain,
                                       std::span<const float> labels, const ClassifierLoss& loss, double divisor,
                                       tensor::GradSink& sink);
/// Evaluation: forward only, without dropout. Empty `labels`: logits alone.
ClassifierOutput classifier_forward(const tensor::ParamStore& params, const ClassifierHead& head,
                                    const at::Tensor& x_TH, const model::GrainInput& grain,
                                    std::span<const float> labels, const ClassifierLoss& loss);

// ---- the parts, for losses of one's own ------------------------------------

/// Logits with what the backward pass needs.
struct ClassifierState {
  at::Tensor row_D;                     ///< int64: the token that speaks for the document
  at::Tensor x_DH;
  kernels::RmsNormResult norm;          ///< decoders
  at::Tensor in_DH, pre_DH;             ///< around the dense product; undefined in decoders
  at::Tensor hidden_DH;                 ///< what enters the last product
  at::Tensor logits_DC;
};
ClassifierState classifier_logits(const tensor::ParamStore& params, const ClassifierHead& head, const at::Tensor& x_TH,
                                  const model::GrainInput& grain);
/// dlogits_DC has the dtype of the logits. Gradients of parameters go to the sink; returns dx_TH.
at::Tensor classifier_logits_backward(const tensor::ParamStore& params, const ClassifierHead& head,
                                      const at::Tensor& x_TH, const model::GrainInput& grain,
                                      const ClassifierState& state, const at::Tensor& dlogits_DC,
                                      tensor::GradSink& sink);

struct ClassLosses {
  LossSums sums;
  std::vector<double> loss_per_doc;
  at::Tensor dlogits_DC;                ///< of (sum of losses) / divisor
};
ClassLosses class_losses(const at::Tensor& logits_DC, std::span<const float> labels, const ClassifierLoss& loss,
                         double divisor);

}  // namespace lockstep::loss
