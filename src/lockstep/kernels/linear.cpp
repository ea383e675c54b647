#include "lockstep/kernels/linear.h"

#include "lockstep/base/grain_team.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/cpu/amx.h"
#include "lockstep/kernels/cpu/linear_amx.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

namespace lockstep::kernels {

using detail::require_contiguous;
using detail::require_dtype;
using detail::require_shape;
using cpu::amx::WeightLayout;

namespace {

constexpr int64_t kPartRows = 64;

/// x w, and b if there is one, by parts of a team's rows.
at::Tensor product_of_rows(const at::Tensor& x_RK, const at::Tensor& w_KC, const at::Tensor& b_C) {
  const auto whole = [&](const at::Tensor& x) { return b_C.defined() ? at::addmm(b_C, x, w_KC) : at::mm(x, w_KC); };
  if (GrainTeam::of_this_thread() == nullptr) return whole(x_RK);
  at::Tensor y_RC = at::empty({x_RK.size(0), w_KC.size(1)}, x_RK.options());
  split_grain_work(x_RK.size(0), kPartRows, [&](int64_t begin, int64_t end, int) {
    at::Tensor part = y_RC.narrow(0, begin, end - begin);
    const at::Tensor x = x_RK.narrow(0, begin, end - begin);
    if (b_C.defined()) {
      at::addmm_out(part, b_C, x, w_KC);
    } else {
      at::mm_out(part, x, w_KC);
    }
  });
  return y_RC;
}

/// Never a matter of the number of rows: a document's results may not depend on what it is packed with.
bool linear_on_tiles(at::ScalarType dtype, int64_t inner, int64_t columns) {
  return dtype == at::kBFloat16 && cpu::amx::linear_fits(inner, columns) && cpu::amx::available();
}

at::Tensor product_on_tiles(const at::Tensor& x_RK, const at::Tensor& w, WeightLayout layout, const at::Tensor& b_C) {
  const int64_t inner = x_RK.size(1), columns = w.size(layout == WeightLayout::ColumnsFirst ? 0 : 1);
  at::Tensor y_RC = at::empty({x_RK.size(0), columns}, x_RK.options());
  const at::Tensor bias = b_C.defined() ? b_C.to(at::kFloat) : b_C;
  const cpu::amx::LinearProduct all{.x_RK = static_cast<const uint16_t*>(x_RK.const_data_ptr()),
                                    .w = static_cast<const uint16_t*>(w.const_data_ptr()),
                                    .layout = layout,
                                    .bias_C = bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                                    .y_RC = static_cast<uint16_t*>(y_RC.mutable_data_ptr()),
                                    .rows = x_RK.size(0),
                                    .inner = inner,
                                    .columns = columns};
  split_grain_work(all.rows, kPartRows, [&](int64_t begin, int64_t end, int) {
    cpu::amx::LinearProduct part = all;
    part.x_RK += begin * inner;
    part.y_RC += begin * columns;
    part.rows = end - begin;
    cpu::amx::linear_product(part, cpu::amx::thread_workspace(workspace_bytes_linear(part)));
  });
  return y_RC;
}

}  // namespace

at::Tensor linear_forward(const at::Tensor& x_TI, const at::Tensor& w_OI, const at::Tensor& b_O) {
  const profile::Scope span(profile::Kind::ProductForward, [&] { return 2 * x_TI.size(0) * w_OI.numel(); });
  require_contiguous(x_TI, "linear_forward: x_TI");
  require_contiguous(w_OI, "linear_forward: w_OI");
  require_shape(x_TI, {x_TI.size(0), w_OI.size(1)}, "linear_forward: x_TI");
  require_dtype(w_OI, x_TI.scalar_type(), "linear_forward: w_OI");
  if (b_O.defined()) {
    require_shape(b_O, {w_OI.size(0)}, "linear_forward: b_O");
    require_contiguous(b_O, "linear_forward: b_O");
  }
  if (linear_on_tiles(x_TI.scalar_type(), w_OI.size(1), w_OI.size(0)))
    return product_on_tiles(x_TI, w_OI, WeightLayout::ColumnsFirst, b_O);
  if (!b_O.defined()) return product_of_rows(x_TI, w_OI.t(), {});
  return product_of_rows(x_TI, w_OI.t(), b_O.to(x_TI.scalar_type()));
}

at::Tensor linear_backward_input(const at::Tensor& dy_TO, const at::Tensor& w_OI) {
  const profile::Scope span(profile::Kind::ProductInputGradient, [&] { return 2 * dy_TO.size(0) * w_OI.numel(); });
  require_contiguous(dy_TO, "linear_backward_input: dy_TO");
  require_contiguous(w_OI, "linear_backward_input: w_OI");
  require_shape(dy_TO, {dy_TO.size(0), w_OI.size(0)}, "linear_backward_input: dy_TO");
  require_dtype(w_OI, dy_TO.scalar_type(), "linear_backward_input: w_OI");
  if (linear_on_tiles(dy_TO.scalar_type(), w_OI.size(0), w_OI.size(1)))
    return product_on_tiles(dy_TO, w_OI, WeightLayout::InnerFirst, {});
  return product_of_rows(dy_TO, w_OI, {});
}

at::Tensor linear_backward_weight(const at::Tensor& dy_TO, const at::Tensor& x_TI) {
  require_contiguous(dy_TO, "linear_backward_weight: dy_TO");
  require_contiguous(x_TI, "linear_backward_weight: x_TI");
  require_shape(dy_TO, {x_TI.size(0), dy_TO.size(1)}, "linear_backward_weight: dy_TO");
  require_dtype(dy_TO, x_TI.scalar_type(), "linear_backward_weight: dy_TO");
  return product_of_rows(dy_TO.t(), x_TI, {});
}

at::Tensor linear_backward_bias(const at::Tensor& dy_TO) {
  require_contiguous(dy_TO, "linear_backward_bias: dy_TO");
  const auto dtype = detail::dtype_of(dy_TO, "linear_backward_bias: dy_TO");
  at::Tensor db_O = at::empty({dy_TO.size(1)}, dy_TO.options().dtype(detail::accumulator_of(dy_TO.scalar_type())));
  cpu::table().column_sums(dtype, dy_TO.const_data_ptr(), dy_TO.size(0), dy_TO.size(1), db_O.mutable_data_ptr());
  return db_O;
}

}  // namespace lockstep::kernels
