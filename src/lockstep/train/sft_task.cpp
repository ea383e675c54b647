#include "lockstep/train/sft_task.h"

#include "lockstep/loss/lm_head.h"
#include "lockstep/model/weights.h"

#include <algorithm>

namespace lockstep::train {
namespace {

int64_t longest(const std::vector<SampleSize>& sizes) {
  int64_t tokens = 1;
  for (const SampleSize& size : sizes) tokens = std::max(tokens, size.tokens);
  return tokens;
}

}  // namespace

std::vector<SampleSize> sizes_of(const std::vector<data::TokenRow>& rows) {
  std::vector<SampleSize> sizes;
  sizes.reserve(rows.size());
  for (const data::TokenRow& row : rows) sizes.push_back({static_cast<int64_t>(row.ids.size()), row.num_targets()});
  return sizes;
}

CostModel cost_model_of(const model::DecoderConfig& config, int64_t num_weights) {
  // Of the experts a token meets a few.
  int64_t idle = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (config.is_sparse(layer)) idle += (config.experts.count - config.experts.per_token) * 3 * config.experts.width * config.hidden_size;
  }
  return {.flops_per_token = 2 * (num_weights - idle), .attention_width = config.num_layers * config.num_heads * config.head_dim};
}

SftTask::SftTask(model::DecoderConfig config, const std::vector<data::TokenRow>& rows, at::ScalarType compute_dtype,
                 model::DecoderOptions options)
    : rows_(rows),
      sizes_(sizes_of(rows)),
      compute_dtype_(compute_dtype),
      decoder_(std::move(config), longest(sizes_), compute_dtype, options),
      num_weights_(tensor::ParamLayout(param_specs()).num_elements()) {}

std::vector<tensor::ParamSpec> SftTask::param_specs() const { return model::Decoder::param_specs(decoder_.config()); }

CostModel SftTask::cost_model() const { return cost_model_of(decoder_.config(), num_weights_); }

std::vector<int64_t> SftTask::contributions(const UpdatePlan& plan) const {
  int64_t head_chunks = 0;
  for (const int64_t targets : plan.grain_targets) {
    head_chunks += loss::num_head_chunks(targets, decoder_.config().vocab_size);
  }
  return decoder_.contributions(static_cast<int64_t>(plan.grains.size()), plan.num_tokens, head_chunks);
}

int64_t SftTask::saved_bytes(int64_t num_tokens, model::Keep keep) const {
  return decoder_.num_layers() * decoder_.saved_bytes_per_layer(num_tokens, keep);
}

at::ScalarType SftTask::load_weights(const tensor::ParamLayout& layout, const tensor::WeightFiles& files,
                                     const std::function<void(tensor::ParamId, const at::Tensor&)>& read,
                                     ThreadTeam& team) const {
  return model::load_weights(layout, files, decoder_.config().tie_word_embeddings, read, &team);
}

loss::LossSums SftTask::run_grain(const tensor::ParamStore& params, const GrainRows& grain, double divisor,
                                  model::Keep keep, tensor::GradSink& sink,
                                  const std::function<void()>& after_forward) const {
  const Network network{decoder_, params, head_of(decoder_)};
  return train::run_grain(network, make_grain(grain, rows_), {divisor, static_cast<double>(grain.update_tokens)}, keep, sink,
                          after_forward);
}

loss::LossSums SftTask::evaluate_grain(const tensor::ParamStore& params, const GrainRows& grain,
                                       std::span<float> /*outputs*/) const {
  const Network network{decoder_, params, head_of(decoder_)};
  return forward_grain(network, make_grain(grain, rows_));
}

std::optional<NonFiniteReport> SftTask::diagnose_grain(const tensor::ParamStore& params, const GrainRows& grain,
                                                       double divisor) const {
  const Network network{decoder_, params, head_of(decoder_)};
  return train::diagnose_grain(network, make_grain(grain, rows_), {divisor, static_cast<double>(grain.update_tokens)});
}

}  // namespace lockstep::train
