#pragma once

#include "lockstep/tensor/grad_sink.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <mutex>
#include <vector>

namespace lockstep::testing {

/// Sums the gradients of each parameter in float64, dense, for tests of models. Parameters without a contribution
/// are zero.
class CollectingSink : public tensor::GradSink {
 public:
  explicit CollectingSink(const tensor::ParamLayout& layout) {
    for (tensor::ParamId id = 0; id < layout.num_params(); ++id) {
      sums_.push_back(at::zeros(layout.spec(id).shape, at::TensorOptions().dtype(at::kDouble)));
      contributions_.push_back(0);
    }
  }

  void add(tensor::ParamId id, const at::Tensor& grad) override {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(grad.sizes() == at_id(sums_, id).sizes(), "gradient of parameter ", id, " has shape ", grad.sizes());
    at_id(sums_, id).add_(grad.to(at::kDouble));
    ++at_id(contributions_, id);
  }

  void add_rows(tensor::ParamId id, const at::Tensor& rows, const at::Tensor& grad) override {
    const std::lock_guard lock(mutex_);
    at_id(sums_, id).index_add_(0, rows, grad.to(at::kDouble));
    ++at_id(contributions_, id);
  }

  const at::Tensor& sum(tensor::ParamId id) const { return sums_.at(static_cast<size_t>(id)); }
  /// Calls of add() and add_rows().
  int num_contributions(tensor::ParamId id) const { return contributions_.at(static_cast<size_t>(id)); }

 private:
  template <class T>
  static T& at_id(std::vector<T>& values, tensor::ParamId id) {
    return values.at(static_cast<size_t>(id));
  }

  std::mutex mutex_;  ///< guards both
  std::vector<at::Tensor> sums_;
  std::vector<int> contributions_;
};

}  // namespace lockstep::testing
