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

at::Tensor embedding_sum_forward(std::initializer_list<EmbeddingRows> tables) {
  const EmbeddingRows& first = *tables.begin();
  const at::ScalarType acc = detail::accumulator_of(first.w_RH.scalar_type());
  at::Tensor x_TH = embedding_forward(first.row_T, first.w_RH, acc);
  const int64_t num_tokens = x_TH.size(0), hidden = x_TH.size(1);
  auto* x = static_cast<char*>(x_TH.mutable_data_ptr());
  for (const auto* next = tables.begin() + 1; next != tables.end(); ++next) {
    detail::require_contiguous(next->row_T, "embedding_sum_forward: row_T");
    detail::require_dtype(next->row_T, at::kInt, "embedding_sum_forward: row_T");
    detail::require_shape(next->row_T, {num_tokens}, "embedding_sum_forward: row_T");
    detail::require_contiguous(next->w_RH, "embedding_sum_forward: w_RH");
    detail::require_dtype(next->w_RH, first.w_RH.scalar_type(), "embedding_sum_forward: w_RH");
    const int64_t num_rows = next->w_RH.size(0);
    detail::require_shape(next->w_RH, {num_rows, hidden}, "embedding_sum_forward: w_RH");
    const auto dtype = detail::dtype_of(next->w_RH, "embedding_sum_forward: w_RH");
    const int32_t* row = next->row_T.const_data_ptr<int32_t>();
    const auto* w = static_cast<const char*>(next->w_RH.const_data_ptr());
    for (int64_t t = 0; t < num_tokens; ++t) {
      LS_CHECK(row[t] >= 0 && row[t] < num_rows, "embedding_sum_forward: row {} of token {}, the table has {}", row[t],
               t, num_rows);
      cpu::table().add_into(x + t * hidden * static_cast<int64_t>(x_TH.element_size()), dtype,
                            w + row[t] * hidden * static_cast<int64_t>(next->w_RH.element_size()), hidden);
    }
  }
  return x_TH;
}

}  // namespace lockstep::kernels
