#pragma once

/// For programs that link libtorch themselves (CMake target lockstep::torch): a loss of one's own on at::Tensor. A program that does
/// without needs lockstep/lockstep.h alone.
#include "lockstep/base/error.h"
#include "lockstep/library/loss.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

namespace lockstep {

/// `function` gets logits [rows, labels] (float32, they want a gradient) and the labels: int64 [rows], the class, or float32
/// [rows, labels]. It returns a loss for each row [rows]; the gradient comes from autograd. Called from many threads at once, with one
/// libtorch thread each.
inline LossFunction tensor_loss(std::function<at::Tensor(const at::Tensor& logits, const at::Tensor& labels)> function) {
  return [function = std::move(function)](const LossInput& input, std::span<float> losses, std::span<float> gradient) {
    const at::AutoGradMode with_gradients(true);
    at::Tensor logits = at::empty({input.num_rows, input.num_labels}, at::kFloat);
    std::copy(input.logits.begin(), input.logits.end(), logits.mutable_data_ptr<float>());
    logits.requires_grad_(true);
    const bool classes = input.num_labels > 1 && input.labels.size() == static_cast<size_t>(input.num_rows);
    at::Tensor labels;
    if (classes) {
      labels = at::empty({input.num_rows}, at::kLong);
      std::copy(input.labels.begin(), input.labels.end(), labels.mutable_data_ptr<int64_t>());
    } else {
      labels = at::empty({input.num_rows, input.num_labels}, at::kFloat);
      std::copy(input.labels.begin(), input.labels.end(), labels.mutable_data_ptr<float>());
    }
    const at::Tensor loss = function(logits, labels);
    if (!loss.defined() || loss.dim() != 1 || loss.size(0) != input.num_rows || !loss.requires_grad()) {
      throw Error(ErrorKind::Usage, "the loss must be one number per row, [" + std::to_string(input.num_rows) +
                                        "], computed from the logits (not detached from them). Do not take the mean: the trainer "
                                        "divides by the rows of the whole update.");
    }
    loss.sum().backward();
    const at::Tensor loss_32 = loss.detach().to(at::kFloat).contiguous();
    const at::Tensor grad_32 = logits.grad().to(at::kFloat).contiguous();
    std::copy_n(loss_32.const_data_ptr<float>(), losses.size(), losses.begin());
    std::copy_n(grad_32.const_data_ptr<float>(), gradient.size(), gradient.begin());
  };
}

}  // namespace lockstep
