#include "lockstep/kernels/elementwise.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/split.h"

#include <ATen/ops/empty.h>

#include <cstring>

namespace lockstep::kernels {
namespace {

/// Bytes of one row of a contiguous tensor.
size_t row_bytes(const at::Tensor& x) {
  return x.size(0) == 0 ? 0 : static_cast<size_t>(x.numel() / x.size(0) * x.element_size());
}

const int64_t* checked_rows(const at::Tensor& rows, int64_t num_rows, const char* what) {
  detail::require_contiguous(rows, what);
  detail::require_dtype(rows, at::kLong, what);
  const int64_t* row = rows.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < rows.numel(); ++i) {
    LS_CHECK(row[i] >= 0 && row[i] < num_rows, "{}: row {} at {}, there are {}", what, row[i], i, num_rows);
  }
  return row;
}

}  // namespace

void add_into(at::Tensor& accumulator, const at::Tensor& x) {
  const profile::Scope span(profile::Kind::Elementwise, [&] { return 2 * accumulator.nbytes() + x.nbytes(); });
  detail::require_contiguous(accumulator, "add_into: accumulator");
  detail::require_contiguous(x, "add_into: x");
  detail::require_shape(x, accumulator.sizes(), "add_into: x");
  if (x.scalar_type() == at::kHalf) return add_into(accumulator, x.to(at::kFloat));
  detail::require_dtype(accumulator, detail::accumulator_of(x.scalar_type()), "add_into: accumulator");
  const cpu::Dtype dtype = detail::dtype_of(x, "add_into: x"), acc = detail::accumulator_of(dtype);
  split_grain_work(x.numel(), detail::kElementsPerPart, [&](int64_t begin, int64_t end, int) {
    cpu::table().add_into(detail::further(accumulator.mutable_data_ptr(), begin, acc), dtype,
                          detail::further(x.const_data_ptr(), begin, dtype), end - begin);
  });
}

void softcap(at::Tensor& x, double cap) {
  detail::require_contiguous(x, "softcap: x");
  cpu::table().softcap(detail::dtype_of(x, "softcap: x"), x.mutable_data_ptr(), cap, x.numel());
}

void softcap_backward(at::Tensor& dy, const at::Tensor& y, double cap) {
  detail::require_contiguous(dy, "softcap_backward: dy");
  detail::require_contiguous(y, "softcap_backward: y");
  detail::require_shape(y, dy.sizes(), "softcap_backward: y");
  detail::require_dtype(y, dy.scalar_type(), "softcap_backward: y");
  cpu::table().softcap_backward(detail::dtype_of(dy, "softcap_backward: dy"), dy.mutable_data_ptr(), y.const_data_ptr(), cap,
                                dy.numel());
}

at::Tensor convert(const at::Tensor& x, at::ScalarType dtype) {
  const profile::Scope span(profile::Kind::Elementwise, [&] { return x.nbytes() + x.numel() * c10::elementSize(dtype); });
  detail::require_contiguous(x, "convert: x");
  // Half precision only comes in and goes out with files; ATen's conversion rounds to nearest even everywhere.
  if (x.scalar_type() == at::kHalf || dtype == at::kHalf) return x.to(dtype, /*non_blocking=*/false, /*copy=*/true);
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(dtype));
  const cpu::Dtype from = detail::dtype_of(x, "convert: x"), to = detail::dtype_of(dtype, "convert: dtype");
  split_grain_work(x.numel(), detail::kElementsPerPart, [&](int64_t begin, int64_t end, int) {
    cpu::table().convert(from, detail::further(x.const_data_ptr(), begin, from), to,
                         detail::further(out.mutable_data_ptr(), begin, to), end - begin);
  });
  return out;
}

at::Tensor gather_rows(const at::Tensor& x, const at::Tensor& rows) {
  detail::require_contiguous(x, "gather_rows: x");
  const int64_t* row = checked_rows(rows, x.size(0), "gather_rows: rows");
  auto shape = x.sizes().vec();
  shape[0] = rows.numel();
  at::Tensor out = at::empty(shape, x.options());
  const auto bytes = row_bytes(x);
  const auto* from = static_cast<const char*>(x.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (int64_t i = 0; i < rows.numel(); ++i) {
    std::memcpy(to + static_cast<size_t>(i) * bytes, from + static_cast<size_t>(row[i]) * bytes, bytes);
  }
  return out;
}

void scatter_rows(at::Tensor& out, const at::Tensor& rows, const at::Tensor& x) {
  detail::require_contiguous(out, "scatter_rows: out");
  detail::require_contiguous(x, "scatter_rows: x");
  detail::require_dtype(x, out.scalar_type(), "scatter_rows: x");
  auto shape = out.sizes().vec();
  shape[0] = rows.numel();
  detail::require_shape(x, shape, "scatter_rows: x");
  const int64_t* row = checked_rows(rows, out.size(0), "scatter_rows: rows");
  const auto bytes = row_bytes(out);
  const auto* from = static_cast<const char*>(x.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  for (int64_t i = 0; i < rows.numel(); ++i) {
    std::memcpy(to + static_cast<size_t>(row[i]) * bytes, from + static_cast<size_t>(i) * bytes, bytes);
  }
}

}  // namespace lockstep::kernels
