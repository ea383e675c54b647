#include "lockstep/kernels/norm.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/split.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lockstep::kernels {
namespace {

using detail::accumulator_of;
using detail::dtype_of;
using detail::require_contiguous;
using detail::require_dtype;
using detail::require_shape;

void require_same_family(const at::Tensor& x, at::ScalarType type, const char* what) {
  LS_CHECK(accumulator_of(x.scalar_type()) == accumulator_of(type), "{}: {} with {}; float64 goes with float64 alone",
           what, c10::toString(x.scalar_type()), c10::toString(type));
}

void forward_rows(const cpu::RmsNormArgs& all) {
  split_grain_work(all.rows, detail::rows_per_part(all.width * detail::bytes_of(all.x_dtype)), [&](int64_t begin, int64_t end, int) {
    cpu::RmsNormArgs part = all;
    const int64_t at = begin * all.width;
    part.x = detail::further(all.x, at, all.x_dtype);
    part.delta = detail::further(all.delta, at, all.delta_dtype);
    part.rstd = detail::further(all.rstd, begin, detail::accumulator_of(all.x_dtype));
    part.y = detail::further(all.y, at, all.out_dtype);
    part.rows = end - begin;
    cpu::table().rms_norm(part);
  });
}

cpu::RmsNormBackwardArgs rows_of(const cpu::RmsNormBackwardArgs& all, int64_t begin, int64_t end) {
  cpu::RmsNormBackwardArgs part = all;
  const int64_t at = begin * all.width;
  part.dy = detail::further(all.dy, at, all.dy_dtype);
  part.x = detail::further(all.x, at, all.x_dtype);
  part.rstd = detail::further(all.rstd, begin, detail::accumulator_of(all.x_dtype));
  part.dx = detail::further(all.dx, at, all.dx_dtype);
  part.rows = end - begin;
  return part;
}

/// A team makes the sums of 16 rows each, which are then added in their order, as the table's function does by itself.
void backward_rows(const cpu::RmsNormBackwardArgs& all, const at::TensorOptions& options) {
  constexpr int64_t kSumRows = 16;
  if (GrainTeam::of_this_thread() == nullptr || all.rows <= kSumRows) return cpu::table().rms_norm_backward(all);
  const int64_t sums = (all.rows + kSumRows - 1) / kSumRows;
  const cpu::Dtype acc = detail::accumulator_of(all.x_dtype);
  const at::Tensor dw_SN = at::empty({sums, all.width}, options), scratch_SN = at::empty({sums, all.width}, options);
  const int64_t unit = detail::rows_per_part(all.width * detail::bytes_of(all.x_dtype)) / kSumRows;
  split_grain_work(sums, unit, [&](int64_t begin, int64_t end, int) {
    for (int64_t sum = begin; sum < end; ++sum) {
      cpu::RmsNormBackwardArgs part = rows_of(all, sum * kSumRows, std::min(all.rows, (sum + 1) * kSumRows));
      part.dw = detail::further(dw_SN.mutable_data_ptr(), sum * all.width, acc);
      part.scratch = detail::further(scratch_SN.mutable_data_ptr(), sum * all.width, acc);
      cpu::table().rms_norm_backward(part);
    }
  });
  std::memset(all.dw, 0, static_cast<size_t>(all.width * detail::bytes_of(acc)));
  for (int64_t sum = 0; sum < sums; ++sum) {
    cpu::table().add_into(all.dw, acc, detail::further(dw_SN.const_data_ptr(), sum * all.width, acc), all.width);
  }
}

/// `delta_RN` and `rstd_R` may be undefined: no addition; statistics are computed.
RmsNormResult run_rms_norm(const at::Tensor& x_RN, const at::Tensor& delta_RN, const at::Tensor& rstd_R,
                           const at::Tensor& w_N, double eps, at::ScalarType out_dtype) {
  const profile::Scope span(profile::Kind::Norm, [&] { return x_RN.nbytes() + x_RN.numel() * c10::elementSize(out_dtype); });
  const at::ScalarType acc = accumulator_of(x_RN.scalar_type());
  const int64_t width = w_N.numel();
  require_contiguous(x_RN, "rms_norm: x_RN");
  require_contiguous(w_N, "rms_norm: w_N");
  require_dtype(w_N, acc, "rms_norm: w_N");
  require_shape(w_N, {x_RN.size(-1)}, "rms_norm: w_N");
  require_same_family(x_RN, out_dtype, "rms_norm: x_RN and out_dtype");

  const int64_t rows = x_RN.numel() / width;
  RmsNormResult result{at::empty(x_RN.sizes(), x_RN.options().dtype(out_dtype)),
                       rstd_R.defined() ? rstd_R : at::empty({rows}, x_RN.options().dtype(acc))};
  cpu::RmsNormArgs args{};
  args.x_dtype = args.delta_dtype = dtype_of(x_RN, "rms_norm: x_RN");
  args.out_dtype = dtype_of(out_dtype, "rms_norm: out_dtype");
  // The table's functions write x only when there is a delta, and then x is the caller's to change.
  args.x = const_cast<void*>(x_RN.const_data_ptr());
  if (delta_RN.defined()) {
    require_contiguous(delta_RN, "add_rms_norm: delta_RN");
    require_shape(delta_RN, x_RN.sizes(), "add_rms_norm: delta_RN");
    require_same_family(x_RN, delta_RN.scalar_type(), "add_rms_norm: x_RN and delta_RN");
    args.delta_dtype = dtype_of(delta_RN, "add_rms_norm: delta_RN");
    args.delta = delta_RN.const_data_ptr();
  }
  if (rstd_R.defined()) {
    require_contiguous(rstd_R, "rms_norm_apply: rstd_R");
    require_dtype(rstd_R, acc, "rms_norm_apply: rstd_R");
    LS_CHECK(rstd_R.numel() == rows, "rms_norm_apply: rstd_R has {} values for {} rows", rstd_R.numel(), rows);
    args.rstd_given = true;
  }
  args.w = w_N.const_data_ptr();
  args.rstd = result.rstd_R.data_ptr();
  args.y = result.y_RN.mutable_data_ptr();
  args.rows = rows;
  args.width = width;
  args.eps = eps;
  forward_rows(args);
  return result;
}

}  // namespace

RmsNormResult rms_norm_forward(const at::Tensor& x_RN, const at::Tensor& w_N, double eps, at::ScalarType out_dtype) {
  return run_rms_norm(x_RN, {}, {}, w_N, eps, out_dtype);
}

RmsNormResult add_rms_norm_forward(at::Tensor& x_RN, const at::Tensor& delta_RN, const at::Tensor& w_N, double eps,
                                   at::ScalarType out_dtype) {
  LS_CHECK(delta_RN.defined(), "add_rms_norm_forward: delta_RN is undefined");
  return run_rms_norm(x_RN, delta_RN, {}, w_N, eps, out_dtype);
}

at::Tensor rms_norm_apply(const at::Tensor& x_RN, const at::Tensor& rstd_R, const at::Tensor& w_N,
                          at::ScalarType out_dtype) {
  LS_CHECK(rstd_R.defined(), "rms_norm_apply: rstd_R is undefined");
  return run_rms_norm(x_RN, {}, rstd_R, w_N, 0, out_dtype).y_RN;
}

at::Tensor rms_norm_backward(const at::Tensor& dy_RN, const at::Tensor& x_RN, const at::Tensor& rstd_R,
                             const at::Tensor& w_N, at::Tensor& dx_RN) {
  const profile::Scope span(profile::Kind::Norm, [&] { return dy_RN.nbytes() + x_RN.nbytes() + 2 * dx_RN.nbytes(); });
  const at::ScalarType acc = accumulator_of(x_RN.scalar_type());
  const int64_t width = w_N.numel();
  const int64_t rows = x_RN.numel() / width;
  for (const auto* x : {&dy_RN, &x_RN, &rstd_R, &w_N, &std::as_const(dx_RN)}) {
    require_contiguous(*x, "rms_norm_backward: every operand");
  }
  require_shape(w_N, {x_RN.size(-1)}, "rms_norm_backward: w_N");
  require_shape(dy_RN, x_RN.sizes(), "rms_norm_backward: dy_RN");
  require_shape(dx_RN, x_RN.sizes(), "rms_norm_backward: dx_RN");
  require_dtype(rstd_R, acc, "rms_norm_backward: rstd_R");
  require_dtype(w_N, acc, "rms_norm_backward: w_N");
  require_same_family(x_RN, dy_RN.scalar_type(), "rms_norm_backward: x_RN and dy_RN");
  require_same_family(x_RN, dx_RN.scalar_type(), "rms_norm_backward: x_RN and dx_RN");
  LS_CHECK(rstd_R.numel() == rows, "rms_norm_backward: rstd_R has {} values for {} rows", rstd_R.numel(), rows);

  at::Tensor dw_N = at::empty({width}, w_N.options());
  at::Tensor scratch = at::empty({width}, w_N.options());
  cpu::RmsNormBackwardArgs args{};
  args.dy_dtype = dtype_of(dy_RN, "rms_norm_backward: dy_RN");
  args.x_dtype = dtype_of(x_RN, "rms_norm_backward: x_RN");
  args.dx_dtype = dtype_of(dx_RN, "rms_norm_backward: dx_RN");
  args.dy = dy_RN.const_data_ptr();
  args.x = x_RN.const_data_ptr();
  args.rstd = rstd_R.const_data_ptr();
  args.w = w_N.const_data_ptr();
  args.dx = dx_RN.mutable_data_ptr();
  args.dw = dw_N.mutable_data_ptr();
  args.scratch = scratch.mutable_data_ptr();
  args.rows = rows;
  args.width = width;
  backward_rows(args, w_N.options());
  return dw_N;
}

}  // namespace lockstep::kernels
