#include "lockstep/kernels/rope.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/split.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

namespace lockstep::kernels {
namespace {

void turn(at::Tensor& x_TND, const at::Tensor& position_T, const RopeTable& table, bool inverse) {
  LS_CHECK(x_TND.dim() == 3 && x_TND.stride(2) == 1 && x_TND.stride(1) == x_TND.size(2),
           "rope: x_TND needs three dimensions and each token's [N, D] part contiguous");
  const int64_t num_tokens = x_TND.size(0);
  const int64_t num_positions = table.cos_PD2.size(0);
  LS_CHECK(table.cos_PD2.dim() == 2 && 2 * table.cos_PD2.size(1) <= x_TND.size(2), "rope: cos_PD2 is wider than half a head");
  detail::require_shape(table.sin_PD2, table.cos_PD2.sizes(), "rope: sin_PD2");
  detail::require_contiguous(table.cos_PD2, "rope: cos_PD2");
  detail::require_contiguous(table.sin_PD2, "rope: sin_PD2");
  detail::require_dtype(table.cos_PD2, detail::accumulator_of(x_TND.scalar_type()), "rope: cos_PD2");
  detail::require_dtype(table.sin_PD2, table.cos_PD2.scalar_type(), "rope: sin_PD2");
  detail::require_contiguous(position_T, "rope: position_T");
  detail::require_dtype(position_T, at::kInt, "rope: position_T");
  detail::require_shape(position_T, {num_tokens}, "rope: position_T");
  const int32_t* position = position_T.const_data_ptr<int32_t>();
  for (int64_t t = 0; t < num_tokens; ++t) {
    LS_CHECK(position[t] >= 0 && position[t] < num_positions, "rope: position {} of token {}, the table has {}",
             position[t], t, num_positions);
  }

  cpu::RopeArgs args{};
  args.dtype = detail::dtype_of(x_TND, "rope: x_TND");
  args.x = x_TND.mutable_data_ptr();
  args.tokens = num_tokens;
  args.heads = x_TND.size(1);
  args.width = x_TND.size(2);
  args.rotated = 2 * table.cos_PD2.size(1);
  args.token_stride = x_TND.stride(0);
  args.position = position;
  args.cosine = table.cos_PD2.const_data_ptr();
  args.sine = table.sin_PD2.const_data_ptr();
  args.inverse = inverse;
  split_grain_work(num_tokens, detail::rows_per_part(args.token_stride * detail::bytes_of(args.dtype)),
                   [&](int64_t begin, int64_t end, int) {
                     cpu::RopeArgs part = args;
                     part.x = detail::further(args.x, begin * args.token_stride, args.dtype);
                     part.position = position + begin;
                     part.tokens = end - begin;
                     cpu::table().rope(part);
                   });
}

template <class A>
void fill_table(RopeTable& table, const double* inverse_frequencies, double attention_scaling) {
  const int64_t half = table.cos_PD2.size(1);
  A* cosine = table.cos_PD2.mutable_data_ptr<A>();
  A* sine = table.sin_PD2.mutable_data_ptr<A>();
  for (int64_t p = 0; p < table.cos_PD2.size(0); ++p) {
    for (int64_t i = 0; i < half; ++i) {
      const A angle = static_cast<A>(p) * static_cast<A>(inverse_frequencies[i]);
      // In double, so that the float result is the rounded true value whatever libm does in its last bit.
      cosine[p * half + i] = static_cast<A>(std::cos(static_cast<double>(angle))) * static_cast<A>(attention_scaling);
      sine[p * half + i] = static_cast<A>(std::sin(static_cast<double>(angle))) * static_cast<A>(attention_scaling);
    }
  }
}

}  // namespace

RopeTable rope_table(const at::Tensor& inverse_frequencies, int64_t num_positions, double attention_scaling,
                     at::ScalarType dtype) {
  detail::require_contiguous(inverse_frequencies, "rope_table: inverse_frequencies");
  detail::require_dtype(inverse_frequencies, at::kDouble, "rope_table: inverse_frequencies");
  const auto options = inverse_frequencies.options().dtype(detail::accumulator_of(dtype));
  RopeTable table{at::empty({num_positions, inverse_frequencies.numel()}, options),
                  at::empty({num_positions, inverse_frequencies.numel()}, options)};
  const double* frequencies = inverse_frequencies.const_data_ptr<double>();
  if (dtype == at::kDouble) {
    fill_table<double>(table, frequencies, attention_scaling);
  } else {
    fill_table<float>(table, frequencies, attention_scaling);
  }
  return table;
}

void rope_forward(at::Tensor& x_TND, const at::Tensor& position_T, const RopeTable& table) {
  const profile::Scope span(profile::Kind::Elementwise, [&] { return 2 * x_TND.nbytes(); });
  turn(x_TND, position_T, table, false);
}

void rope_backward(at::Tensor& dx_TND, const at::Tensor& position_T, const RopeTable& table) {
  const profile::Scope span(profile::Kind::Elementwise, [&] { return 2 * dx_TND.nbytes(); });
  turn(dx_TND, position_T, table, true);
}

}  // namespace lockstep::kernels
