#pragma once

#include "lockstep/loss/lm_head.h"
#include "lockstep/model/decoder.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

/// A whole model in one piece for tests: weights, forward, backward, gradients as plain sums.
namespace lockstep::testing {

struct Document {
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;  ///< as many; -1: none
};
/// Every token predicts the next one.
Document document_with_all_targets(std::vector<int32_t> tokens);
/// Random tokens; `trained_from`: the first position whose target counts.
Document random_document(int64_t num_tokens, int64_t vocab_size, uint64_t ordinal, int64_t trained_from);
model::GrainInput pack(const std::vector<Document>& documents);
int64_t num_targets(const model::GrainInput& grain);

/// Adds contributions as they come, in the dtype given.
class SumSink : public tensor::GradSink {
 public:
  SumSink(const tensor::ParamLayout& layout, at::ScalarType dtype);
  void add(tensor::ParamId id, const at::Tensor& grad) override;
  void add_rows(tensor::ParamId id, const at::Tensor& rows, const at::Tensor& grad) override;

  const at::Tensor& grad(tensor::ParamId id) const { return grads_[static_cast<size_t>(id)]; }
  at::Tensor& grad(tensor::ParamId id) { return grads_[static_cast<size_t>(id)]; }
  double norm(tensor::ParamId id) const;
  double total_norm() const;
  int num_contributions() const { return num_contributions_; }
  /// Of all bytes of all gradients.
  uint64_t hash() const;
  void clear();

 private:
  std::vector<at::Tensor> grads_;
  std::mutex mutex_;  ///< guards grads_ and num_contributions_
  int num_contributions_ = 0;
};

class ModelRig {
 public:
  ModelRig(const model::DecoderConfig& config, at::ScalarType compute_dtype, model::DecoderOptions options = {});
  ModelRig(const ModelRig&) = delete;
  ModelRig& operator=(const ModelRig&) = delete;

  /// Weights of a model folder.
  void load(const std::filesystem::path& folder);
  /// Normal-like values: matrices of size `scale`, norm weights around 1.
  void randomise(uint64_t seed, double scale);

  /// `router`: gets the statistics of all layers.
  at::Tensor forward(const model::GrainInput& grain, model::RouterStatistics* router = nullptr) const;
  /// Mean nll over `divisor` tokens, with the router loss where the configuration asks for it.
  double loss(const model::GrainInput& grain, double divisor) const;
  /// The same; gradients go to the sink.
  double backward(const model::GrainInput& grain, double divisor, model::Keep keep, tensor::GradSink& sink) const;
  std::vector<int32_t> greedy(std::vector<int32_t> prompt, size_t num_new) const;

  const model::Decoder& decoder() const { return decoder_; }
  const tensor::ParamLayout& layout() const { return layout_; }
  tensor::ParamStore& store() { return store_; }
  const tensor::ParamStore& store() const { return store_; }
  const loss::LmHead& head() const { return head_; }

 private:
  tensor::ParamLayout layout_;
  tensor::ParamStore store_;
  model::Decoder decoder_;
  loss::LmHead head_;
};

/// Equal shape, dtype and bits.
bool same_bits(const at::Tensor& a, const at::Tensor& b);
/// The same values at an address that is off by one element.
at::Tensor shifted_copy(const at::Tensor& x);
/// Uniform in [-scale, scale).
at::Tensor random_tensor(at::IntArrayRef sizes, at::ScalarType dtype, uint64_t ordinal, double scale);

}  // namespace lockstep::testing
