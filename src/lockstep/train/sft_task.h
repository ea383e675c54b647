#pragma once

#include "lockstep/data/examples.h"
#include "lockstep/train/grain.h"
#include "lockstep/train/task.h"

#include <vector>

namespace lockstep::train {

/// A decoder with its language-model head over token rows: supervised fine-tuning. A sample's share of the divisor is
/// its number of target tokens.
class SftTask final : public Task {
 public:
  /// Keeps a reference to `rows`. For evaluation: options without dropout.
  SftTask(model::DecoderConfig config, const std::vector<data::TokenRow>& rows, at::ScalarType compute_dtype,
          model::DecoderOptions options = {});

  const model::Decoder& decoder() const { return decoder_; }

  std::vector<tensor::ParamSpec> param_specs() const override;
  at::ScalarType compute_dtype() const override { return compute_dtype_; }
  const std::vector<SampleSize>& sizes() const override { return sizes_; }
  CostModel cost_model() const override;
  std::vector<int64_t> contributions(const UpdatePlan& plan) const override;
  int64_t saved_bytes(int64_t num_tokens, model::Keep keep) const override;
  at::ScalarType load_weights(const tensor::ParamLayout& layout, const tensor::WeightFiles& files,
                              const std::function<void(tensor::ParamId, const at::Tensor&)>& read,
                              ThreadTeam& team) const override;
  loss::LossSums run_grain(const tensor::ParamStore& params, const GrainRows& grain, double divisor, model::Keep keep,
                           tensor::GradSink& sink, const std::function<void()>& after_forward) const override;
  loss::LossSums evaluate_grain(const tensor::ParamStore& params, const GrainRows& grain,
                                std::span<float> outputs) const override;
  double router_coefficient() const override { return decoder_.config().experts.router_loss; }
  std::optional<NonFiniteReport> diagnose_grain(const tensor::ParamStore& params, const GrainRows& grain,
                                                double divisor) const override;

 private:
  const std::vector<data::TokenRow>& rows_;
  std::vector<SampleSize> sizes_;
  at::ScalarType compute_dtype_;
  model::Decoder decoder_;
  int64_t num_weights_ = 0;
};

/// Tokens and targets of each row.
std::vector<SampleSize> sizes_of(const std::vector<data::TokenRow>& rows);
/// Of a decoder with so many weights.
CostModel cost_model_of(const model::DecoderConfig& config, int64_t num_weights);

}  // namespace lockstep::train
