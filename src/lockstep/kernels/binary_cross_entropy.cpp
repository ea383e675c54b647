#include "lockstep/kernels/binary_cross_entropy.h"

#include "lockstep/kernels/checks.h"

#include <ATen/ops/empty.h>

namespace lockstep::kernels {

BinaryCrossEntropyResult binary_cross_entropy(const at::Tensor& logits_DC, const at::Tensor& labels_DC,
                                              double grad_scale) {
  const at::ScalarType dtype = detail::accumulator_of(logits_DC.scalar_type());
  for (const auto* x : {&logits_DC, &labels_DC}) {
    detail::require_contiguous(*x, "binary_cross_entropy: logits_DC, labels_DC");
    detail::require_dtype(*x, dtype, "binary_cross_entropy: logits_DC, labels_DC");
    detail::require_shape(*x, logits_DC.sizes(), "binary_cross_entropy: logits_DC, labels_DC");
  }
  BinaryCrossEntropyResult result{at::empty(logits_DC.sizes(), logits_DC.options()),
                                  at::empty(logits_DC.sizes(), logits_DC.options())};
  cpu::BinaryCrossEntropyArgs args{};
  args.dtype = detail::dtype_of(logits_DC, "binary_cross_entropy: logits_DC");
  args.logits = logits_DC.const_data_ptr();
  args.labels = labels_DC.const_data_ptr();
  args.loss = result.loss_DC.mutable_data_ptr();
  args.grad = result.grad_DC.mutable_data_ptr();
  args.count = logits_DC.numel();
  args.grad_scale = grad_scale;
  cpu::table().binary_cross_entropy(args);
  return result;
}

}  // namespace lockstep::kernels
