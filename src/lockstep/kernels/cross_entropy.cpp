#include "lockstep/kernels/cross_entropy.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/split.h"

#include <ATen/ops/empty.h>

namespace lockstep::kernels {

CrossEntropyResult cross_entropy(at::Tensor& logits_CV, const at::Tensor& target_C, double grad_scale,
                                 bool compute_grad) {
  LS_CHECK(logits_CV.dim() == 2, "cross_entropy: logits_CV has {} dimensions", logits_CV.dim());
  const int64_t rows = logits_CV.size(0);
  const int64_t vocab = logits_CV.size(1);
  detail::require_contiguous(logits_CV, "cross_entropy: logits_CV");
  detail::require_contiguous(target_C, "cross_entropy: target_C");
  detail::require_shape(target_C, {rows}, "cross_entropy: target_C");
  const at::Tensor target_long = target_C.to(at::kLong);
  const int64_t* target = target_long.const_data_ptr<int64_t>();
  for (int64_t r = 0; r < rows; ++r) {
    LS_CHECK(target[r] >= 0 && target[r] < vocab, "cross_entropy: target {} in row {}, the vocabulary has {}",
             target[r], r, vocab);
  }

  const auto options = logits_CV.options();
  const auto acc_options = options.dtype(detail::accumulator_of(logits_CV.scalar_type()));
  CrossEntropyResult result{at::empty({rows}, acc_options), at::empty({rows}, acc_options),
                            at::empty({rows}, options.dtype(at::kBool))};
  const GrainTeam* team = GrainTeam::of_this_thread();
  at::Tensor scratch = at::empty({team == nullptr ? 1 : team->parts(), vocab}, acc_options);
  cpu::CrossEntropyArgs args{};
  args.dtype = detail::dtype_of(logits_CV, "cross_entropy: logits_CV");
  args.logits = logits_CV.mutable_data_ptr();
  args.target = target;
  args.nll = result.nll_C.mutable_data_ptr();
  args.entropy = result.entropy_C.mutable_data_ptr();
  args.top1 = result.top1_C.mutable_data_ptr<bool>();
  args.scratch = scratch.mutable_data_ptr();
  args.rows = rows;
  args.vocab = vocab;
  args.grad_scale = grad_scale;
  args.compute_grad = compute_grad;
  const cpu::Dtype acc = detail::accumulator_of(args.dtype);
  split_grain_work(rows, detail::rows_per_part(vocab * detail::bytes_of(args.dtype)), [&](int64_t begin, int64_t end, int part) {
    cpu::CrossEntropyArgs some = args;
    some.logits = detail::further(args.logits, begin * vocab, args.dtype);
    some.target = target + begin;
    some.nll = detail::further(args.nll, begin, acc);
    some.entropy = detail::further(args.entropy, begin, acc);
    some.top1 = args.top1 + begin;
    some.scratch = detail::further(args.scratch, part * vocab, acc);
    some.rows = end - begin;
    cpu::table().cross_entropy(some);
  });
  return result;
}

}  // namespace lockstep::kernels
