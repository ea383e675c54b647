#include "lockstep/kernels/embedding.h"

#include "lockstep/base/error.h"
#include "lockstep/kernels/checks.h"

#include <ATen/ops/empty.h>

namespace lockstep::kernels {

at::Tensor embedding_forward(const at::Tensor& token_T, const at::Tensor& w_VH, at::ScalarType out_dtype) {
  detail::require_contiguous(token_T, "embedding_forward: token_T");
  detail::require_dtype(token_T, at::kInt, "embedding_forward: token_T");
  detail::require_contiguous(w_VH, "embedding_forward: w_VH");
  const auto from = detail::dtype_of(w_VH, "embedding_forward: w_VH");
  const auto to = detail::dtype_of(out_dtype, "embedding_forward: out_dtype");
  const int64_t vocab = w_VH.size(0);
  const int64_t hidden = w_VH.size(1);
  at::Tensor x_TH = at::empty({token_T.numel(), hidden}, w_VH.options().dtype(out_dtype));

  const int32_t* token = token_T.const_data_ptr<int32_t>();
  const auto* w = static_cast<const char*>(w_VH.const_data_ptr());
  auto* x = static_cast<char*>(x_TH.mutable_data_ptr());
  const int64_t w_row_bytes = hidden * w_VH.element_size();
  const int64_t x_row_bytes = hidden * x_TH.element_size();
  for (int64_t t = 0; t < token_T.numel(); ++t) {
    LS_CHECK(token[t] >= 0 && token[t] < vocab, "embedding_forward: token id {} at {}, the vocabulary has {}",
             token[t], t, vocab);
    cpu::table().convert(from, w + token[t] * w_row_bytes, to, x + t * x_row_bytes, hidden);
  }
  return x_TH;
}

}  // namespace lockstep::kernels
