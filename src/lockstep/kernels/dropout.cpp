#include "lockstep/kernels/dropout.h"

#include "lockstep/base/error.h"
#include "lockstep/base/philox.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/checks.h"
#include "lockstep/kernels/elementwise.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

namespace lockstep::kernels {

at::Tensor dropout(const at::Tensor& x_TH, at::ScalarType out_dtype, std::span<const int64_t> doc_starts,
                   std::span<const uint64_t> ordinals, const Dropout& config) {
  LS_CHECK(config.probability >= 0 && config.probability < 1, "dropout: probability = {}", config.probability);
  if (config.probability == 0) return x_TH.scalar_type() == out_dtype ? x_TH : convert(x_TH, out_dtype);
  const profile::Scope span(profile::Kind::Dropout, [&] { return x_TH.nbytes() + x_TH.numel() * c10::elementSize(out_dtype); });
  detail::require_contiguous(x_TH, "dropout: x_TH");
  LS_CHECK(x_TH.dim() == 2 && doc_starts.size() == ordinals.size() + 1 && doc_starts.front() == 0 &&
               doc_starts.back() == x_TH.size(0),
           "dropout: {} offsets and {} ordinals for {} rows", doc_starts.size(), ordinals.size(), x_TH.size(0));
  const auto from = detail::dtype_of(x_TH, "dropout: x_TH");
  const auto to = detail::dtype_of(out_dtype, "dropout: out_dtype");
  LS_CHECK(detail::accumulator_of(x_TH.scalar_type()) == detail::accumulator_of(out_dtype), "dropout: {} to {}",
           c10::toString(x_TH.scalar_type()), c10::toString(out_dtype));
  at::Tensor out = at::empty(x_TH.sizes(), x_TH.options().dtype(out_dtype));
  const int64_t width = x_TH.size(1);
  const auto* src = static_cast<const char*>(x_TH.const_data_ptr());
  auto* dst = static_cast<char*>(out.mutable_data_ptr());
  const auto drop_below = static_cast<uint32_t>(config.probability * 0x1p32);
  const double keep_scale = 1 / (1 - config.probability);

  std::array<uint32_t, 1024> words;  // a multiple of 16, as the table's function wants
  for (size_t doc = 0; doc < ordinals.size(); ++doc) {
    const RandomStream stream{config.seed, RandomPurpose::Dropout, config.module, ordinals[doc], config.segment};
    const int64_t begin = doc_starts[doc] * width, count = (doc_starts[doc + 1] - doc_starts[doc]) * width;
    for (int64_t i = 0; i < count; i += static_cast<int64_t>(words.size())) {
      const int64_t part = std::min(count - i, static_cast<int64_t>(words.size()));
      stream.fill(words.data(), static_cast<uint64_t>(i), static_cast<uint64_t>(part));
      std::fill(words.begin() + part, words.end(), 0U);
      cpu::table().drop(from, src + (begin + i) * static_cast<int64_t>(x_TH.element_size()), to,
                        dst + (begin + i) * static_cast<int64_t>(out.element_size()), part, words.data(), drop_below,
                        keep_scale);
    }
  }
  return out;
}

}  // namespace lockstep::kernels
