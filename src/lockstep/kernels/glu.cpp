#include "lockstep/kernels/glu.h"

#include "lockstep/base/profile.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/split.h"

#include <ATen/ops/empty.h>

namespace lockstep::kernels {

using detail::require_contiguous;
using detail::require_dtype;
using detail::require_shape;

at::Tensor swiglu_forward(const at::Tensor& gate_TM, const at::Tensor& up_TM, Gate gate) {
  const profile::Scope span(profile::Kind::Activation, [&] { return 3 * gate_TM.nbytes(); });
  require_contiguous(gate_TM, "swiglu_forward: gate_TM");
  require_contiguous(up_TM, "swiglu_forward: up_TM");
  require_shape(up_TM, gate_TM.sizes(), "swiglu_forward: up_TM");
  require_dtype(up_TM, gate_TM.scalar_type(), "swiglu_forward: up_TM");
  at::Tensor h_TM = at::empty(gate_TM.sizes(), gate_TM.options());
  const auto run = gate == Gate::Silu ? cpu::table().swiglu : cpu::table().geglu;
  const cpu::Dtype dtype = detail::dtype_of(gate_TM, "swiglu_forward: gate_TM");
  split_grain_work(gate_TM.numel(), detail::kElementsPerPart, [&](int64_t begin, int64_t end, int) {
    run(dtype, detail::further(gate_TM.const_data_ptr(), begin, dtype), detail::further(up_TM.const_data_ptr(), begin, dtype),
        detail::further(h_TM.mutable_data_ptr(), begin, dtype), end - begin);
  });
  return h_TM;
}

SwigluGrads swiglu_backward(const at::Tensor& dh_TM, const at::Tensor& gate_TM, const at::Tensor& up_TM, Gate gate,
                            at::Tensor* h_TM) {
  const profile::Scope span(profile::Kind::Activation, [&] { return (h_TM == nullptr ? 5 : 6) * gate_TM.nbytes(); });
  for (const auto* x : {&dh_TM, &gate_TM, &up_TM}) {
    require_contiguous(*x, "swiglu_backward: every operand");
    require_shape(*x, gate_TM.sizes(), "swiglu_backward: every operand");
    require_dtype(*x, gate_TM.scalar_type(), "swiglu_backward: every operand");
  }
  SwigluGrads grads{at::empty(gate_TM.sizes(), gate_TM.options()), at::empty(gate_TM.sizes(), gate_TM.options())};
  if (h_TM != nullptr) *h_TM = at::empty(gate_TM.sizes(), gate_TM.options());
  void* const h = h_TM == nullptr ? nullptr : h_TM->mutable_data_ptr();
  const auto run = gate == Gate::Silu ? cpu::table().swiglu_backward : cpu::table().geglu_backward;
  const cpu::Dtype dtype = detail::dtype_of(gate_TM, "swiglu_backward: gate_TM");
  split_grain_work(gate_TM.numel(), detail::kElementsPerPart, [&](int64_t begin, int64_t end, int) {
    run(dtype, detail::further(dh_TM.const_data_ptr(), begin, dtype), detail::further(gate_TM.const_data_ptr(), begin, dtype),
        detail::further(up_TM.const_data_ptr(), begin, dtype), detail::further(grads.dgate_TM.mutable_data_ptr(), begin, dtype),
        detail::further(grads.dup_TM.mutable_data_ptr(), begin, dtype), detail::further(h, begin, dtype), end - begin);
  });
  return grads;
}

}  // namespace lockstep::kernels
