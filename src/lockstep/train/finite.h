#pragma once

#include "lockstep/model/grain_input.h"
#include "lockstep/tensor/grad_sink.h"

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

/// For the search of the first number that is not finite; slow and only run after a failure.
namespace lockstep::train {

bool all_finite(const at::Tensor& values);

/// Keeps the first parameter whose gradient is not finite, in the order of the backward pass.
class FiniteCheck final : public tensor::GradSink {
 public:
  void add(tensor::ParamId id, const at::Tensor& grad) override;
  void add_rows(tensor::ParamId id, const at::Tensor& rows, const at::Tensor& grad) override;
  tensor::ParamId first() const { return first_; }

 private:
  tensor::ParamId first_ = -1;
};

/// Sample ids of the documents whose rows of x_TH are not all finite.
std::vector<int64_t> bad_samples(const at::Tensor& x_TH, const model::GrainInput& grain);
/// Sample ids of the documents whose loss is not finite.
std::vector<int64_t> bad_documents(std::span<const double> loss_per_doc, const model::GrainInput& grain);

}  // namespace lockstep::train
