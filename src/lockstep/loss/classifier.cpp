#include "lockstep/loss/classifier.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/linear.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <numeric>
#include <utility>

namespace lockstep::loss {
namespace {

using at::Tensor;
using model::in_dtype;

enum class HeadDropout : uint32_t { BeforeDense = 0, BeforeOut = 1 };

/// Every document is one row, at position 0.
Tensor drop_head(const ClassifierHead& head, const Tensor& x_DH, at::ScalarType dtype, const model::GrainInput& grain,
                 HeadDropout place) {
  std::vector<int64_t> starts(static_cast<size_t>(x_DH.size(0)) + 1);
  std::iota(starts.begin(), starts.end(), int64_t{0});
  return kernels::dropout(x_DH, dtype, starts, grain.ordinals,
                          {.probability = head.dropout,
                           .seed = head.seed,
                           .module = head.module,
                           .segment = kernels::kHiddenDropoutSegment + static_cast<uint32_t>(place)});
}

/// The row that transformers pools: encoders the first; decoders the last that is not padding, or else the first.
Tensor pooled_rows(const ClassifierHead& head, const model::GrainInput& grain) {
  Tensor row_D = at::empty({grain.num_docs()}, at::kLong);
  auto* row = row_D.mutable_data_ptr<int64_t>();
  const auto* token = grain.token_T.const_data_ptr<int32_t>();
  for (size_t doc = 0; doc + 1 < grain.doc_starts.size(); ++doc) {
    const int64_t first = grain.doc_starts[doc];
    int64_t last = grain.doc_starts[doc + 1] - 1;
    while (last > first && token[last] == head.pad_token_id) --last;
    row[doc] = head.final_norm_id < 0 ? first : last;
  }
  return row_D;
}

model::Linear linear_of(const tensor::ParamLayout& layout, const std::string& name) {
  const model::Linear linear{layout.find(name + ".weight"), layout.find(name + ".bias")};
  LS_CHECK(linear.weight >= 0, "the layout has no {}.weight", name);
  return linear;
}

}  // namespace

ClassifierHead classifier_head_of(const model::EncoderConfig& config, const tensor::ParamLayout& layout) {
  ClassifierHead head;
  const bool roberta = config.model_type == "roberta", distilbert = config.model_type == "distilbert";
  head.dense = linear_of(layout, roberta      ? "classifier.dense"
                                 : distilbert ? "pre_classifier"
                                              : config.prefix + "pooler.dense");
  head.activation = distilbert ? kernels::Activation::Relu : kernels::Activation::Tanh;
  head.drop_before_dense = roberta;
  head.out = linear_of(layout, roberta ? "classifier.out_proj" : "classifier");
  head.dropout = config.classifier_dropout;
  head.module = static_cast<uint32_t>(config.num_layers) + 1;
  return head;
}

ClassifierHead classifier_head_of(const model::DecoderConfig& config, const tensor::ParamLayout& layout) {
  ClassifierHead head;
  head.out = linear_of(layout, "score");
  head.final_norm_id = layout.find("model.norm.weight");
  LS_CHECK(head.final_norm_id >= 0, "the layout has no model.norm.weight");
  head.rms_norm_eps = config.rms_norm_eps;
  head.pad_token_id = config.pad_token_id;
  head.module = static_cast<uint32_t>(config.num_layers) + 1;
  return head;
}

ClassifierState classifier_logits(const tensor::ParamStore& params, const ClassifierHead& head, const Tensor& x_TH,
                                  const model::GrainInput& grain) {
  const at::ScalarType compute = params.compute_dtype(), stream = x_TH.scalar_type();
  ClassifierState s;
  s.row_D = pooled_rows(head, grain);
  s.x_DH = kernels::gather_rows(x_TH, s.row_D);
  if (head.final_norm_id >= 0) {
    s.norm = kernels::rms_norm_forward(s.x_DH, params.weight(head.final_norm_id), head.rms_norm_eps, stream);
    s.hidden_DH = s.norm.y_RN;
  } else {
    s.in_DH = head.drop_before_dense ? drop_head(head, s.x_DH, compute, grain, HeadDropout::BeforeDense)
                                     : in_dtype(s.x_DH, compute);
    s.pre_DH = model::project(params, head.dense, s.in_DH);
    s.hidden_DH = drop_head(head, kernels::activation_forward(head.activation, s.pre_DH), stream, grain,
                            HeadDropout::BeforeOut);
  }
  s.logits_DC = kernels::linear_forward(s.hidden_DH, in_dtype(params.weight(head.out.weight), stream),
                                        head.out.bias < 0 ? Tensor{} : params.weight(head.out.bias));
  return s;
}

Tensor classifier_logits_backward(const tensor::ParamStore& params, const ClassifierHead& head, const Tensor& x_TH,
                                  const model::GrainInput& grain, const ClassifierState& state,
                                  const Tensor& dlogits_DC, tensor::GradSink& sink) {
  const at::ScalarType compute = params.compute_dtype(), stream = x_TH.scalar_type();
  model::project_backward(head.out, dlogits_DC, state.hidden_DH, sink);
  const Tensor dhidden_DH =
      kernels::linear_backward_input(dlogits_DC, in_dtype(params.weight(head.out.weight), stream));
  Tensor dx_DH;
  if (head.final_norm_id >= 0) {
    dx_DH = at::zeros_like(state.x_DH);
    sink.add(head.final_norm_id, kernels::rms_norm_backward(dhidden_DH, state.x_DH, state.norm.rstd_R,
                                                            params.weight(head.final_norm_id), dx_DH));
  } else {
    const Tensor dact_DH = drop_head(head, dhidden_DH, compute, grain, HeadDropout::BeforeOut);
    const Tensor dpre_DH = kernels::activation_backward(head.activation, dact_DH, state.pre_DH);
    model::project_backward(head.dense, dpre_DH, state.in_DH, sink);
    const Tensor din_DH = kernels::linear_backward_input(dpre_DH, params.weight(head.dense.weight));
    dx_DH = head.drop_before_dense ? drop_head(head, din_DH, stream, grain, HeadDropout::BeforeDense)
                                   : in_dtype(din_DH, stream);
  }
  Tensor dx_TH = at::zeros(x_TH.sizes(), stream);
  kernels::scatter_rows(dx_TH, state.row_D, dx_DH);
  return dx_TH;
}

ClassifierBackward classifier_backward(const tensor::ParamStore& params, const ClassifierHead& head,
                                       const Tensor& x_TH, const model::GrainInput& grain,
                                       std::span<const float> labels, const ClassifierLoss& loss, double divisor,
                                       tensor::GradSink& sink) {
  const profile::Scope span(profile::Kind::Head);
  const ClassifierState state = classifier_logits(params, head, x_TH, grain);
  ClassLosses losses = class_losses(state.logits_DC, labels, loss, divisor);
  ClassifierBackward out;
  out.dx_TH = classifier_logits_backward(params, head, x_TH, grain, state, losses.dlogits_DC, sink);
  out.output = {std::move(losses.sums), std::move(losses.loss_per_doc), state.logits_DC};
  return out;
}

ClassifierOutput classifier_forward(const tensor::ParamStore& params, const ClassifierHead& head, const Tensor& x_TH,
                                    const model::GrainInput& grain, std::span<const float> labels,
                                    const ClassifierLoss& loss) {
  ClassifierHead quiet = head;
  quiet.dropout = 0;
  const ClassifierState state = classifier_logits(params, quiet, x_TH, grain);
  if (labels.empty()) return {{}, std::vector<double>(static_cast<size_t>(grain.num_docs())), state.logits_DC};
  ClassLosses losses = class_losses(state.logits_DC, labels, loss, 1);
  return {std::move(losses.sums), std::move(losses.loss_per_doc), state.logits_DC};
}

}  // namespace lockstep::loss
