#include "lockstep/train/classify_task.h"

#include "lockstep/base/error.h"
#include "lockstep/model/decoder.h"
#include "lockstep/train/finite.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

namespace lockstep::train {
namespace {

using data::LabelledRow;

int64_t longest(const std::vector<LabelledRow>& rows) {
  size_t tokens = 1;
  for (const LabelledRow& row : rows) tokens = std::max(tokens, row.ids.size());
  return static_cast<int64_t>(tokens);
}

/// An encoder or a decoder: they differ in what a layer keeps and in how they are made.
template <class Model>
class TaskOf final : public ClassifyTask {
 public:
  using Saved = std::conditional_t<std::is_same_v<Model, model::Encoder>, model::EncoderSaved, model::LayerSaved>;

  TaskOf(Model model, const std::vector<LabelledRow>& rows, const std::string& prefix,
         const ClassifyTaskOptions& options)
      : ClassifyTask(rows, model.config().num_labels, options), model_(std::move(model)) {
    const tensor::ParamLayout layout(param_specs());
    head_ = loss::classifier_head_of(model_.config(), layout);
    head_.seed = options_.seed;
    if (!options_.dropout) head_.dropout = 0;
    num_weights_ = layout.num_elements();
    prefix_ = prefix;
    initializer_range_ = model_.config().initializer_range;
  }

  std::vector<tensor::ParamSpec> param_specs() const override { return Model::param_specs(model_.config()); }

  CostModel cost_model() const override {
    const auto& config = model_.config();
    int64_t head_dim = 0;
    if constexpr (std::is_same_v<Model, model::Encoder>) {
      head_dim = config.head_dim();
    } else {
      head_dim = config.head_dim;
    }
    return {.flops_per_token = 2 * num_weights_, .attention_width = config.num_layers * config.num_heads * head_dim};
  }

  std::vector<int64_t> contributions(const UpdatePlan& plan) const override {
    const auto num_grains = static_cast<int64_t>(plan.grains.size());
    const auto num_docs = static_cast<int64_t>(plan.samples.rows.size());
    return model_.contributions(num_grains, plan.num_tokens,
                                std::is_same_v<Model, model::Encoder> ? num_docs : num_grains);
  }

  int64_t saved_bytes(int64_t num_tokens, model::Keep keep) const override {
    return model_.num_layers() * model_.saved_bytes_per_layer(num_tokens, keep);
  }

  loss::LossSums run_grain(const tensor::ParamStore& params, const GrainRows& grain, double divisor, model::Keep keep,
                           tensor::GradSink& sink, const std::function<void()>& after_forward) const override {
    const Packed packed = pack(grain);
    std::vector<Saved> saved(static_cast<size_t>(model_.num_layers()));
    at::Tensor x_TH = model_.embed_forward(params, packed.input);
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      x_TH = model_.layer_forward(params, layer, std::move(x_TH), packed.input, keep, saved[static_cast<size_t>(layer)]);
    }
    loss::ClassifierBackward head = loss::classifier_backward(params, head_, x_TH, packed.input, packed.labels,
                                                              options_.loss, divisor, sink);
    x_TH.reset();
    after_forward();
    at::Tensor dx_TH = std::move(head.dx_TH);
    for (int layer = model_.num_layers() - 1; layer >= 0; --layer) {
      model_.layer_backward(params, layer, dx_TH, packed.input, std::move(saved[static_cast<size_t>(layer)]), sink);
    }
    model_.embed_backward(params, packed.input, dx_TH, sink);
    return head.output.sums;
  }

  loss::LossSums evaluate_grain(const tensor::ParamStore& params, const GrainRows& grain,
                                std::span<float> outputs) const override {
    const Packed packed = pack(grain);
    const at::Tensor x_TH = forward(params, packed.input, nullptr);
    const loss::ClassifierOutput out = loss::classifier_forward(params, head_, x_TH, packed.input, packed.labels,
                                                                options_.loss);
    const at::Tensor logits = out.logits_DC.to(at::kFloat).contiguous();
    LS_CHECK(logits.numel() == static_cast<int64_t>(outputs.size()), "{} outputs for {} places", logits.numel(),
             outputs.size());
    std::copy_n(logits.const_data_ptr<float>(), outputs.size(), outputs.begin());
    return out.sums;
  }

  std::optional<NonFiniteReport> diagnose_grain(const tensor::ParamStore& params, const GrainRows& grain,
                                                double divisor) const override {
    const Packed packed = pack(grain);
    std::optional<NonFiniteReport> report;
    const at::Tensor x_TH = forward(params, packed.input, &report);
    if (report) return report;
    FiniteCheck check;
    const loss::ClassifierBackward head = loss::classifier_backward(params, head_, x_TH, packed.input, packed.labels,
                                                                    options_.loss, divisor, check);
    if (auto ids = bad_documents(head.output.loss_per_doc, packed.input); !ids.empty()) {
      return NonFiniteReport{"head", std::move(ids)};
    }
    run_grain(params, grain, divisor, model::Keep::All, check, [] {});
    if (check.first() < 0) return std::nullopt;
    return NonFiniteReport{fmt::format("gradient of {}", params.layout().spec(check.first()).name),
                           packed.input.sample_ids};
  }

 private:
  /// The residual stream after the last layer. With `report`, stops at the first block that is not finite.
  at::Tensor forward(const tensor::ParamStore& params, const model::GrainInput& input,
                     std::optional<NonFiniteReport>* report) const {
    Saved nothing;
    at::Tensor x_TH = model_.embed_forward(params, input);
    const auto broken = [&](const std::string& block) {
      if (report == nullptr || all_finite(x_TH)) return false;
      *report = NonFiniteReport{block, bad_samples(x_TH, input)};
      return true;
    };
    if (broken("embedding")) return x_TH;
    for (int layer = 0; layer < model_.num_layers(); ++layer) {
      x_TH = model_.layer_forward(params, layer, std::move(x_TH), input, model::Keep::Nothing, nothing);
      if (broken(fmt::format("layer {}", layer))) return x_TH;
    }
    return x_TH;
  }

  Model model_;
  loss::ClassifierHead head_;
  int64_t num_weights_ = 0;
};

}  // namespace

ClassifyTask::ClassifyTask(const std::vector<LabelledRow>& rows, int64_t num_labels, ClassifyTaskOptions options)
    : num_labels_(num_labels), options_(options), rows_(rows) {
  LS_CHECK(num_labels > 0, "a classifier with {} labels", num_labels);
  sizes_.reserve(rows.size());
  for (const LabelledRow& row : rows) {
    sizes_.push_back({static_cast<int64_t>(row.ids.size()), row.labels.empty() ? 0 : 1});
  }
}

at::ScalarType ClassifyTask::load_weights(const tensor::ParamLayout& layout, const tensor::WeightFiles& files,
                                          const std::function<void(tensor::ParamId, const at::Tensor&)>& read,
                                          ThreadTeam& team) const {
  model::ClassifierWeightsOptions options;
  options.prefix = prefix_;
  options.initializer_range = initializer_range_;
  options.seed = options_.seed;
  options.ignore_mismatched_sizes = options_.ignore_mismatched_sizes;
  model::ClassifierWeights found = model::load_classifier_weights(layout, files, options, read, &team);
  loaded_ = {};
  for (const tensor::ParamId id : found.made_new) loaded_.made_new.push_back(layout.spec(id).name);
  loaded_.unused = std::move(found.unused);
  return found.stored_dtype;
}

ClassifyTask::Packed ClassifyTask::pack(const GrainRows& grain) const {
  Packed packed;
  model::GrainInput& input = packed.input;
  input.token_T = at::empty({grain.num_tokens}, at::kInt);
  input.position_T = at::empty({grain.num_tokens}, at::kInt);
  input.type_T = at::empty({grain.num_tokens}, at::kInt);
  input.ordinals = grain.ordinals;
  input.doc_starts.push_back(0);
  int64_t t = 0;
  bool labelled = false;
  for (const int64_t index : grain.rows) {
    const LabelledRow& row = rows_[static_cast<size_t>(index)];
    const auto length = static_cast<int64_t>(row.ids.size());
    std::copy(row.ids.begin(), row.ids.end(), input.token_T.data_ptr<int32_t>() + t);
    std::copy(row.type_ids.begin(), row.type_ids.end(), input.type_T.data_ptr<int32_t>() + t);
    auto* position = input.position_T.data_ptr<int32_t>() + t;
    for (int32_t i = 0; i < static_cast<int32_t>(length); ++i) position[i] = i;
    t += length;
    input.doc_starts.push_back(t);
    input.sample_ids.push_back(row.source_row);
    labelled |= !row.labels.empty();
    if (row.labels.empty() && options_.loss.problem == loss::Problem::SingleLabel) {
      packed.labels.push_back(static_cast<float>(loss::kNoLabel));
    } else {
      packed.labels.insert(packed.labels.end(), row.labels.begin(), row.labels.end());
    }
  }
  if (!labelled) packed.labels.clear();
  LS_CHECK(t == grain.num_tokens, "{} tokens packed, {} planned", t, grain.num_tokens);
  return packed;
}

std::unique_ptr<ClassifyTask> make_classify_task(const model::EncoderConfig& config,
                                                 const std::vector<LabelledRow>& rows,
                                                 const ClassifyTaskOptions& options) {
  model::EncoderOptions encoder;
  if (options.dropout) {
    encoder.hidden_dropout = config.hidden_dropout;
    encoder.attention_dropout = config.attention_dropout;
  }
  encoder.seed = options.seed;
  return std::make_unique<TaskOf<model::Encoder>>(model::Encoder(config, options.compute_dtype, encoder), rows,
                                                  config.prefix, options);
}

std::unique_ptr<ClassifyTask> make_classify_task(const model::DecoderConfig& config,
                                                 const std::vector<LabelledRow>& rows,
                                                 const ClassifyTaskOptions& options) {
  model::DecoderOptions decoder;
  decoder.attention_dropout = options.dropout ? config.attention_dropout : 0;
  decoder.seed = options.seed;
  return std::make_unique<TaskOf<model::Decoder>>(
      model::Decoder(config, longest(rows), options.compute_dtype, decoder), rows, "model.", options);
}

}  // namespace lockstep::train
