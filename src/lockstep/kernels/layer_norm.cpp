#include "lockstep/kernels/layer_norm.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/split.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include <utility>

namespace lockstep::kernels {
namespace {

/// x_RN is float32 or float64, and everything named here has its dtype.
void check_layer_norm(const at::Tensor& x_RN, const at::Tensor& w_N, const LayerNormMoments* moments) {
  detail::require_contiguous(x_RN, "layer_norm: x_RN");
  detail::require_dtype(x_RN, detail::accumulator_of(x_RN.scalar_type()), "layer_norm: x_RN");
  detail::require_contiguous(w_N, "layer_norm: w_N");
  detail::require_dtype(w_N, x_RN.scalar_type(), "layer_norm: w_N");
  detail::require_shape(w_N, {x_RN.size(-1)}, "layer_norm: w_N");
  if (moments == nullptr) return;
  for (const auto* m : {&moments->mean_R, &moments->rstd_R}) {
    detail::require_contiguous(*m, "layer_norm: mean_R, rstd_R");
    detail::require_dtype(*m, x_RN.scalar_type(), "layer_norm: mean_R, rstd_R");
    detail::require_shape(*m, {x_RN.numel() / w_N.numel()}, "layer_norm: mean_R, rstd_R");
  }
}

/// `delta_RN` may be undefined: no addition. `moments` null: they are computed.
void layer_norm_rows(const cpu::LayerNormArgs& all) {
  split_grain_work(all.rows, detail::rows_per_part(all.width * detail::bytes_of(all.x_dtype)), [&](int64_t begin, int64_t end, int) {
    cpu::LayerNormArgs part = all;
    const int64_t at = begin * all.width;
    part.x = detail::further(all.x, at, all.x_dtype);
    part.delta = detail::further(all.delta, at, all.delta_dtype);
    part.mean = detail::further(all.mean, begin, all.x_dtype);
    part.rstd = detail::further(all.rstd, begin, all.x_dtype);
    part.y = detail::further(all.y, at, all.y_dtype);
    part.rows = end - begin;
    cpu::table().layer_norm(part);
  });
}

/// A team makes the sums of 16 rows each, which are then added in their order, as the table's function does by itself.
void layer_norm_backward_rows(const cpu::LayerNormBackwardArgs& all, const at::TensorOptions& options) {
  constexpr int64_t kSumRows = 16;
  if (GrainTeam::of_this_thread() == nullptr || all.rows <= kSumRows) return cpu::table().layer_norm_backward(all);
  const int64_t sums = (all.rows + kSumRows - 1) / kSumRows, width = all.width;
  const at::Tensor dw_SN = at::empty({sums, width}, options), db_SN = at::empty({sums, width}, options);
  const at::Tensor scratch_SN = at::empty({sums, 2 * width}, options);
  split_grain_work(sums, detail::rows_per_part(width * detail::bytes_of(all.dtype)) / kSumRows, [&](int64_t begin, int64_t end, int) {
    for (int64_t sum = begin; sum < end; ++sum) {
      cpu::LayerNormBackwardArgs part = all;
      const int64_t row = sum * kSumRows, at = row * width;
      part.dy = detail::further(all.dy, at, all.dtype);
      part.x = detail::further(all.x, at, all.dtype);
      part.mean = detail::further(all.mean, row, all.dtype);
      part.rstd = detail::further(all.rstd, row, all.dtype);
      part.dx = detail::further(all.dx, at, all.dtype);
      part.dw = detail::further(dw_SN.mutable_data_ptr(), sum * width, all.dtype);
      part.db = detail::further(db_SN.mutable_data_ptr(), sum * width, all.dtype);
      part.scratch = detail::further(scratch_SN.mutable_data_ptr(), 2 * sum * width, all.dtype);
      part.rows = std::min(kSumRows, all.rows - row);
      cpu::table().layer_norm_backward(part);
    }
  });
  for (const auto& [total, parts_SN] : {std::pair{all.dw, &dw_SN}, std::pair{all.db, &db_SN}}) {
    std::memset(total, 0, static_cast<size_t>(width * detail::bytes_of(all.dtype)));
    for (int64_t sum = 0; sum < sums; ++sum) {
      cpu::table().add_into(total, all.dtype, detail::further(parts_SN->const_data_ptr(), sum * width, all.dtype), width);
    }
  }
}

LayerNormResult run_layer_norm(const at::Tensor& x_RN, const at::Tensor& delta_RN, const LayerNormMoments* moments,
                               const at::Tensor& w_N, const at::Tensor& b_N, double eps, at::ScalarType y_dtype) {
  const profile::Scope span(profile::Kind::Norm, [&] { return x_RN.nbytes() + x_RN.numel() * c10::elementSize(y_dtype); });
  check_layer_norm(x_RN, w_N, moments);
  check_layer_norm(x_RN, b_N, nullptr);
  LS_CHECK(detail::accumulator_of(y_dtype) == x_RN.scalar_type(), "layer_norm: {} from {}", c10::toString(y_dtype),
           c10::toString(x_RN.scalar_type()));
  const int64_t width = w_N.numel();
  const int64_t rows = x_RN.numel() / width;
  LayerNormResult result{at::empty(x_RN.sizes(), x_RN.options().dtype(y_dtype)),
                         moments != nullptr ? *moments
                                            : LayerNormMoments{at::empty({rows}, x_RN.options()),
                                                               at::empty({rows}, x_RN.options())}};
  cpu::LayerNormArgs args{};
  args.x_dtype = args.delta_dtype = detail::dtype_of(x_RN, "layer_norm: x_RN");
  args.y_dtype = detail::dtype_of(y_dtype, "layer_norm: y_dtype");
  // The table's functions write x only when there is a delta, and then x is the caller's to change.
  args.x = const_cast<void*>(x_RN.const_data_ptr());
  if (delta_RN.defined()) {
    detail::require_contiguous(delta_RN, "add_layer_norm: delta_RN");
    detail::require_shape(delta_RN, x_RN.sizes(), "add_layer_norm: delta_RN");
    LS_CHECK(detail::accumulator_of(delta_RN.scalar_type()) == x_RN.scalar_type(), "add_layer_norm: {} onto {}",
             c10::toString(delta_RN.scalar_type()), c10::toString(x_RN.scalar_type()));
    args.delta_dtype = detail::dtype_of(delta_RN, "add_layer_norm: delta_RN");
    args.delta = delta_RN.const_data_ptr();
  }
  args.moments_given = moments != nullptr;
  args.w = w_N.const_data_ptr();
  args.b = b_N.const_data_ptr();
  args.mean = result.moments.mean_R.data_ptr();
  args.rstd = result.moments.rstd_R.data_ptr();
  args.y = result.y_RN.mutable_data_ptr();
  args.rows = rows;
  args.width = width;
  args.eps = eps;
  layer_norm_rows(args);
  return result;
}

}  // namespace

LayerNormResult layer_norm_forward(const at::Tensor& x_RN, const at::Tensor& w_N, const at::Tensor& b_N, double eps,
                                   at::ScalarType y_dtype) {
  return run_layer_norm(x_RN, {}, nullptr, w_N, b_N, eps, y_dtype);
}

LayerNormResult add_layer_norm_forward(at::Tensor& x_RN, const at::Tensor& delta_RN, const at::Tensor& w_N,
                                       const at::Tensor& b_N, double eps, at::ScalarType y_dtype) {
  LS_CHECK(delta_RN.defined(), "add_layer_norm_forward: delta_RN is undefined");
  return run_layer_norm(x_RN, delta_RN, nullptr, w_N, b_N, eps, y_dtype);
}

at::Tensor layer_norm_apply(const at::Tensor& x_RN, const LayerNormMoments& moments, const at::Tensor& w_N,
                            const at::Tensor& b_N, at::ScalarType y_dtype) {
  return run_layer_norm(x_RN, {}, &moments, w_N, b_N, 0, y_dtype).y_RN;
}

LayerNormGrads layer_norm_backward(at::Tensor& dy_RN, const at::Tensor& x_RN, const LayerNormMoments& moments,
                                   const at::Tensor& w_N) {
  const profile::Scope span(profile::Kind::Norm, [&] { return 2 * dy_RN.nbytes() + x_RN.nbytes(); });
  check_layer_norm(x_RN, w_N, &moments);
  detail::require_contiguous(dy_RN, "layer_norm_backward: dy_RN");
  detail::require_shape(dy_RN, x_RN.sizes(), "layer_norm_backward: dy_RN");
  detail::require_dtype(dy_RN, x_RN.scalar_type(), "layer_norm_backward: dy_RN");
  const int64_t width = w_N.numel();
  LayerNormGrads grads{at::empty({width}, w_N.options()), at::empty({width}, w_N.options())};
  const at::Tensor scratch = at::empty({2 * width}, w_N.options());
  cpu::LayerNormBackwardArgs args{};
  args.dtype = detail::dtype_of(x_RN, "layer_norm_backward: x_RN");
  args.dy = dy_RN.const_data_ptr();
  args.x = x_RN.const_data_ptr();
  args.mean = moments.mean_R.const_data_ptr();
  args.rstd = moments.rstd_R.const_data_ptr();
  args.w = w_N.const_data_ptr();
  args.dx = dy_RN.mutable_data_ptr();
  args.dw = grads.dw_N.mutable_data_ptr();
  args.db = grads.db_N.mutable_data_ptr();
  args.scratch = scratch.mutable_data_ptr();
  args.rows = x_RN.numel() / width;
  args.width = width;
  layer_norm_backward_rows(args, w_N.options());
  return grads;
}

}  // namespace lockstep::kernels
