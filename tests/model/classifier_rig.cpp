#include "model/classifier_rig.h"

#include "lockstep/base/philox.h"

#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

namespace lockstep::testing {
namespace {

at::Tensor int_row(const std::vector<int32_t>& values) {
  at::Tensor out = at::empty({static_cast<int64_t>(values.size())}, at::kInt);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<int32_t>());
  return out;
}

}  // namespace

ClassDocument random_class_document(int64_t num_tokens, int64_t vocab_size, uint64_t ordinal, int64_t num_types) {
  ClassDocument out{random_document(num_tokens, vocab_size, ordinal, 0).tokens, {}};
  for (int64_t t = 0; t < num_tokens && num_types > 0; ++t)
    out.types.push_back(static_cast<int32_t>(std::min(t * num_types / num_tokens, num_types - 1)));
  return out;
}

model::GrainInput pack_classes(const std::vector<ClassDocument>& documents, uint64_t first_ordinal) {
  model::GrainInput grain;
  std::vector<int32_t> tokens, positions, types;
  bool any_types = false;
  grain.doc_starts.push_back(0);
  for (const ClassDocument& document : documents) {
    for (size_t i = 0; i < document.tokens.size(); ++i) {
      positions.push_back(static_cast<int32_t>(i));
      types.push_back(document.types.empty() ? 0 : document.types[i]);
    }
    any_types = any_types || !document.types.empty();
    tokens.insert(tokens.end(), document.tokens.begin(), document.tokens.end());
    grain.doc_starts.push_back(static_cast<int64_t>(tokens.size()));
    grain.ordinals.push_back(first_ordinal + grain.ordinals.size());
    grain.sample_ids.push_back(static_cast<int64_t>(grain.ordinals.back()));
  }
  grain.token_T = int_row(tokens);
  grain.position_T = int_row(positions);
  if (any_types) grain.type_T = int_row(types);
  return grain;
}

ClassifierRig::ClassifierRig(const model::EncoderConfig& config, at::ScalarType compute_dtype,
                             model::EncoderOptions options)
    : prefix_(config.prefix),
      layout_(model::Encoder::param_specs(config)),
      store_(layout_, compute_dtype, 1),
      encoder_(std::make_unique<model::Encoder>(config, compute_dtype, options)),
      head_(loss::classifier_head_of(config, layout_)) {
  head_.dropout = 0;
  head_.seed = options.seed;
}

ClassifierRig::ClassifierRig(const model::DecoderConfig& config, at::ScalarType compute_dtype)
    : prefix_("model."),
      layout_(model::Decoder::param_specs(config)),
      store_(layout_, compute_dtype, 1),
      decoder_(std::make_unique<model::Decoder>(config, 256, compute_dtype)),
      head_(loss::classifier_head_of(config, layout_)) {}

model::ClassifierWeights ClassifierRig::load(const std::filesystem::path& folder) {
  const tensor::WeightFiles files = tensor::WeightFiles::open(folder);
  return model::load_classifier_weights(layout_, files, {.prefix = prefix_, .initializer_range = 0.02, .seed = 42},
                                        [&](tensor::ParamId id, const at::Tensor& values) {
                                          at::Tensor weight = store_.weight(id);
                                          weight.copy_(values);
                                        });
}

void ClassifierRig::randomise(uint64_t seed, double scale) {
  for (tensor::ParamId id = 0; id < layout_.num_params(); ++id) {
    at::Tensor weight = store_.weight(id);
    const std::string& name = layout_.spec(id).name;
    const bool norm_weight =
        !layout_.spec(id).is_matrix() && name.ends_with(".weight");
    weight.copy_(random_tensor(weight.sizes(), at::kDouble, seed * 1000 + static_cast<uint64_t>(id), scale)
                     .add_(norm_weight ? 1.0 : 0.0));
  }
}

tensor::ParamId ClassifierRig::id(const std::string& name) const {
  const tensor::ParamId found = layout_.find(name);
  EXPECT_GE(found, 0) << name;
  return found;
}

void ClassifierRig::set(const std::string& name, const std::function<double(int64_t)>& value_of_element) {
  at::Tensor weight = store_.weight(id(name));
  at::Tensor values = at::empty(weight.sizes(), at::kDouble);
  for (int64_t i = 0; i < values.numel(); ++i) values.mutable_data_ptr<double>()[i] = value_of_element(i);
  weight.copy_(values);
}

std::vector<at::Tensor> ClassifierRig::hidden_states(const model::GrainInput& grain) const {
  std::vector<at::Tensor> out{encoder_->embed_forward(store_, grain)};
  model::EncoderSaved unused;
  for (int layer = 0; layer < encoder_->num_layers(); ++layer)
    out.push_back(encoder_->layer_forward(store_, layer, out.back().clone(), grain, model::Keep::Nothing, unused));
  return out;
}

at::Tensor ClassifierRig::forward(const model::GrainInput& grain) const {
  if (encoder_) return hidden_states(grain).back();
  at::Tensor x_TH = decoder_->embed_forward(store_, grain);
  model::LayerSaved unused;
  for (int layer = 0; layer < decoder_->num_layers(); ++layer)
    x_TH = decoder_->layer_forward(store_, layer, std::move(x_TH), grain, model::Keep::Nothing, unused);
  return x_TH;
}

loss::ClassifierOutput ClassifierRig::evaluate(const model::GrainInput& grain, const std::vector<float>& labels,
                                               const loss::ClassifierLoss& loss) const {
  return loss::classifier_forward(store_, head_, forward(grain), grain, labels, loss);
}

double ClassifierRig::loss_with_dropout(const model::GrainInput& grain, const std::vector<float>& labels,
                                        const loss::ClassifierLoss& loss, double divisor) const {
  const loss::ClassifierState state = loss::classifier_logits(store_, head_, forward(grain), grain);
  return loss::class_losses(state.logits_DC, labels, loss, divisor).sums.nll.value() / divisor;
}

namespace {

/// Forward and back through the layers of an encoder or a decoder, with the head between.
template <class Model, class Saved>
loss::ClassifierOutput run_back(const Model& model, const ClassifierRig& rig, const model::GrainInput& grain,
                                const std::vector<float>& labels, const loss::ClassifierLoss& loss, double divisor,
                                model::Keep keep, tensor::GradSink& sink) {
  std::vector<Saved> saved(static_cast<size_t>(model.num_layers()));
  at::Tensor x_TH = model.embed_forward(rig.store(), grain);
  for (int layer = 0; layer < model.num_layers(); ++layer)
    x_TH = model.layer_forward(rig.store(), layer, std::move(x_TH), grain, keep, saved[static_cast<size_t>(layer)]);
  loss::ClassifierBackward head =
      loss::classifier_backward(rig.store(), rig.head(), x_TH, grain, labels, loss, divisor, sink);
  for (int layer = model.num_layers() - 1; layer >= 0; --layer)
    model.layer_backward(rig.store(), layer, head.dx_TH, grain, std::move(saved[static_cast<size_t>(layer)]), sink);
  model.embed_backward(rig.store(), grain, head.dx_TH, sink);
  return std::move(head.output);
}

}  // namespace

loss::ClassifierOutput ClassifierRig::backward(const model::GrainInput& grain, const std::vector<float>& labels,
                                               const loss::ClassifierLoss& loss, double divisor, model::Keep keep,
                                               tensor::GradSink& sink) const {
  if (encoder_)
    return run_back<model::Encoder, model::EncoderSaved>(*encoder_, *this, grain, labels, loss, divisor, keep, sink);
  return run_back<model::Decoder, model::LayerSaved>(*decoder_, *this, grain, labels, loss, divisor, keep, sink);
}

}  // namespace lockstep::testing
