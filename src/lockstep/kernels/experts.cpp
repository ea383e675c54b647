#include "lockstep/kernels/experts.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/elementwise.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::kernels {
namespace {

void exponentials(const float* x, float* y, int64_t count) { cpu::table().exp_f32(x, y, count); }
void exponentials(const double* x, double* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = std::exp(x[i]);
}

/// Few columns: sums in order.
template <class A>
void softmax_in_place(A* row, int64_t width) {
  const A top = *std::max_element(row, row + width);
  for (int64_t e = 0; e < width; ++e) row[e] -= top;
  exponentials(row, row, width);
  const A sum = std::accumulate(row, row + width, A{0});
  for (int64_t e = 0; e < width; ++e) row[e] /= sum;
}

template <class A>
void softmax_gradient(const A* dp, const A* p, A* out, int64_t width) {
  A mean = 0;
  for (int64_t e = 0; e < width; ++e) mean += dp[e] * p[e];
  for (int64_t e = 0; e < width; ++e) out[e] = p[e] * (dp[e] - mean);
}

/// use(A{}) with the C++ type of an accumulator's dtype.
template <class Use>
void with_accumulator(const at::Tensor& x, Use use) {
  if (x.scalar_type() == at::kDouble) return use(double{});
  detail::require_dtype(x, at::kFloat, "experts: a tensor of sums");
  use(float{});
}

}  // namespace

at::Tensor router_softmax(const at::Tensor& logits_TE) {
  at::Tensor p_TE = convert(logits_TE, detail::accumulator_of(logits_TE.scalar_type()));
  const int64_t width = p_TE.size(1);
  with_accumulator(p_TE, [&]<class A>(A) {
    auto* row = p_TE.mutable_data_ptr<A>();
    for (int64_t t = 0; t < p_TE.size(0); ++t) softmax_in_place(row + t * width, width);
  });
  return p_TE;
}

at::Tensor router_softmax_backward(const at::Tensor& dprobability_TE, const at::Tensor& probability_TE, at::ScalarType dtype) {
  detail::require_shape(dprobability_TE, probability_TE.sizes(), "router_softmax_backward: dprobability_TE");
  detail::require_dtype(dprobability_TE, probability_TE.scalar_type(), "router_softmax_backward: dprobability_TE");
  at::Tensor out = at::empty(probability_TE.sizes(), probability_TE.options());
  const int64_t width = out.size(1);
  with_accumulator(out, [&]<class A>(A) {
    for (int64_t t = 0; t < out.size(0); ++t)
      softmax_gradient(dprobability_TE.const_data_ptr<A>() + t * width, probability_TE.const_data_ptr<A>() + t * width,
                       out.mutable_data_ptr<A>() + t * width, width);
  });
  return out.scalar_type() == dtype ? out : convert(out, dtype);
}

std::vector<int32_t> largest_of_rows(const at::Tensor& probability_TE, int64_t count) {
  const int64_t T = probability_TE.size(0), E = probability_TE.size(1);
  LS_CHECK(count >= 1 && count <= E, "largest_of_rows: {} of {}", count, E);
  std::vector<int32_t> out, order(static_cast<size_t>(E));
  out.reserve(static_cast<size_t>(T * count));
  with_accumulator(probability_TE, [&]<class A>(A) {
    for (int64_t t = 0; t < T; ++t) {
      const A* p = probability_TE.const_data_ptr<A>() + t * E;
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + count, order.end(),
                        [&](int32_t a, int32_t b) { return p[a] > p[b] || (p[a] == p[b] && a < b); });
      out.insert(out.end(), order.begin(), order.begin() + count);
    }
  });
  return out;
}

void scale_rows(at::Tensor& x_RW, const at::Tensor& scale_R) {
  detail::require_contiguous(x_RW, "scale_rows: x_RW");
  detail::require_dtype(scale_R, detail::accumulator_of(x_RW.scalar_type()), "scale_rows: scale_R");
  const auto dtype = detail::dtype_of(x_RW, "scale_rows: x_RW");
  const int64_t R = x_RW.size(0), W = x_RW.size(1);
  with_accumulator(scale_R, [&]<class A>(A) {
    const auto wide_dtype = detail::dtype_of(scale_R, "scale_rows: scale_R");
    std::vector<A> wide(static_cast<size_t>(W));
    auto* row = static_cast<char*>(x_RW.mutable_data_ptr());
    for (int64_t r = 0; r < R; ++r, row += W * static_cast<int64_t>(x_RW.element_size())) {
      cpu::table().convert(dtype, row, wide_dtype, wide.data(), W);
      for (A& value : wide) value *= scale_R.const_data_ptr<A>()[r];
      cpu::table().convert(wide_dtype, wide.data(), dtype, row, W);
    }
  });
}

at::Tensor row_dots(const at::Tensor& a_RW, const at::Tensor& b_RW) {
  detail::require_contiguous(a_RW, "row_dots: a_RW");
  detail::require_contiguous(b_RW, "row_dots: b_RW");
  detail::require_shape(b_RW, a_RW.sizes(), "row_dots: b_RW");
  detail::require_dtype(b_RW, a_RW.scalar_type(), "row_dots: b_RW");
  const int64_t R = a_RW.size(0), W = a_RW.size(1);
  at::Tensor out_R = at::empty({R}, a_RW.options().dtype(detail::accumulator_of(a_RW.scalar_type())));
  cpu::table().head_dots(detail::dtype_of(a_RW, "row_dots: a_RW"), a_RW.const_data_ptr(), W, b_RW.const_data_ptr(), W, R, 1, W,
                         out_R.mutable_data_ptr(), R);
  return out_R;
}

void add_rows_into(at::Tensor& out_TW, const at::Tensor& rows, const at::Tensor& x_RW) {
  detail::require_contiguous(out_TW, "add_rows_into: out_TW");
  detail::require_contiguous(x_RW, "add_rows_into: x_RW");
  detail::require_dtype(out_TW, detail::accumulator_of(x_RW.scalar_type()), "add_rows_into: out_TW");
  const int64_t W = out_TW.size(1);
  detail::require_shape(x_RW, {rows.numel(), W}, "add_rows_into: x_RW");
  const auto dtype = detail::dtype_of(x_RW, "add_rows_into: x_RW");
  auto* out = static_cast<char*>(out_TW.mutable_data_ptr());
  const auto* x = static_cast<const char*>(x_RW.const_data_ptr());
  for (int64_t r = 0; r < rows.numel(); ++r) {
    const int64_t row = rows.const_data_ptr<int64_t>()[r];
    LS_CHECK(row >= 0 && row < out_TW.size(0), "add_rows_into: row {} of {}", row, out_TW.size(0));
    cpu::table().add_into(out + row * W * static_cast<int64_t>(out_TW.element_size()), dtype,
                          x + r * W * static_cast<int64_t>(x_RW.element_size()), W);
  }
}

}  // namespace lockstep::kernels
