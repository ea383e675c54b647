#include "lockstep/kernels/linear.h"

#include "lockstep/base/profile.h"
#include "lockstep/kernels/checks.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

namespace lockstep::kernels {

using detail::require_contiguous;
using detail::require_dtype;
using detail::require_shape;

at::Tensor linear_forward(const at::Tensor& x_TI, const at::Tensor& w_OI, const at::Tensor& b_O) {
  const profile::Scope span(profile::Kind::ProductForward, [&] { return 2 * x_TI.size(0) * w_OI.numel(); });
  require_contiguous(x_TI, "linear_forward: x_TI");
  require_contiguous(w_OI, "linear_forward: w_OI");
  require_shape(x_TI, {x_TI.size(0), w_OI.size(1)}, "linear_forward: x_TI");
  require_dtype(w_OI, x_TI.scalar_type(), "linear_forward: w_OI");
  if (!b_O.defined()) return at::mm(x_TI, w_OI.t());
  require_shape(b_O, {w_OI.size(0)}, "linear_forward: b_O");
  return at::addmm(b_O.to(x_TI.scalar_type()), x_TI, w_OI.t());
}

at::Tensor linear_backward_input(const at::Tensor& dy_TO, const at::Tensor& w_OI) {
  const profile::Scope span(profile::Kind::ProductInputGradient, [&] { return 2 * dy_TO.size(0) * w_OI.numel(); });
  require_contiguous(dy_TO, "linear_backward_input: dy_TO");
  require_contiguous(w_OI, "linear_backward_input: w_OI");
  require_shape(dy_TO, {dy_TO.size(0), w_OI.size(0)}, "linear_backward_input: dy_TO");
  require_dtype(w_OI, dy_TO.scalar_type(), "linear_backward_input: w_OI");
  return at::mm(dy_TO, w_OI);
}

at::Tensor linear_backward_weight(const at::Tensor& dy_TO, const at::Tensor& x_TI) {
  require_contiguous(dy_TO, "linear_backward_weight: dy_TO");
  require_contiguous(x_TI, "linear_backward_weight: x_TI");
  require_shape(dy_TO, {x_TI.size(0), dy_TO.size(1)}, "linear_backward_weight: dy_TO");
  require_dtype(dy_TO, x_TI.scalar_type(), "linear_backward_weight: dy_TO");
  return at::mm(dy_TO.t(), x_TI);
}

at::Tensor linear_backward_bias(const at::Tensor& dy_TO) {
  require_contiguous(dy_TO, "linear_backward_bias: dy_TO");
  const auto dtype = detail::dtype_of(dy_TO, "linear_backward_bias: dy_TO");
  at::Tensor db_O = at::empty({dy_TO.size(1)}, dy_TO.options().dtype(detail::accumulator_of(dy_TO.scalar_type())));
  cpu::table().column_sums(dtype, dy_TO.const_data_ptr(), dy_TO.size(0), dy_TO.size(1), db_O.mutable_data_ptr());
  return db_O;
}

}  // namespace lockstep::kernels
