#include "lockstep/loss/lm_head.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/model/products.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <utility>

namespace lockstep::loss {
namespace {

using at::Tensor;

/// The positions with a target, in token order.
struct Targets {
  Tensor row_R;     ///< int64
  Tensor target_R;  ///< int32
  std::vector<int64_t> doc_starts;  ///< num_docs + 1, into R
};

Targets find_targets(const model::GrainInput& grain) {
  const auto* target_T = grain.target_T.const_data_ptr<int32_t>();
  std::vector<int64_t> rows;
  Targets out;
  for (size_t doc = 0; doc + 1 < grain.doc_starts.size(); ++doc) {
    out.doc_starts.push_back(static_cast<int64_t>(rows.size()));
    for (int64_t t = grain.doc_starts[doc]; t < grain.doc_starts[doc + 1]; ++t)
      if (target_T[t] >= 0) rows.push_back(t);
  }
  const auto R = static_cast<int64_t>(rows.size());
  out.doc_starts.push_back(R);
  out.row_R = at::empty({R}, at::kLong);
  out.target_R = at::empty({R}, at::kInt);
  std::copy(rows.begin(), rows.end(), out.row_R.mutable_data_ptr<int64_t>());
  auto* target_R = out.target_R.mutable_data_ptr<int32_t>();
  for (const int64_t row : rows) *target_R++ = target_T[row];
  return out;
}

/// What the loss says about each target token.
struct TokenStatistics {
  std::vector<double> nll_R, entropy_R;
  std::vector<bool> top1_R;

  void append(const kernels::CrossEntropyResult& chunk) {
    append_as_double(nll_R, chunk.nll_C);
    append_as_double(entropy_R, chunk.entropy_C);
    const auto* top1 = chunk.top1_C.const_data_ptr<bool>();
    top1_R.insert(top1_R.end(), top1, top1 + chunk.top1_C.numel());
  }

 private:
  static void append_as_double(std::vector<double>& out, const Tensor& values) {
    const Tensor wide = values.to(at::kDouble);
    const auto* data = wide.const_data_ptr<double>();
    out.insert(out.end(), data, data + wide.numel());
  }
};

struct DocumentSums {
  LossSums sums;
  std::vector<double> nll_per_doc;
};

DocumentSums sum_by_document(const TokenStatistics& tokens, const std::vector<int64_t>& doc_starts) {
  DocumentSums out;
  out.sums.num_targets = doc_starts.back();
  out.sums.num_top1 = std::count(tokens.top1_R.begin(), tokens.top1_R.end(), true);
  for (size_t doc = 0; doc + 1 < doc_starts.size(); ++doc) {
    double nll = 0, entropy = 0;
    for (auto r = static_cast<size_t>(doc_starts[doc]); r < static_cast<size_t>(doc_starts[doc + 1]); ++r) {
      nll += tokens.nll_R[r];
      entropy += tokens.entropy_R[r];
    }
    out.sums.nll.add(nll);
    out.sums.entropy.add(entropy);
    out.nll_per_doc.push_back(nll);
  }
  return out;
}

/// The final norm of the chosen rows of the residual stream.
struct NormedRows {
  Tensor x_RH;
  model::Normed norm;
};

NormedRows norm_rows(const tensor::ParamStore& params, const LmHead& head, const Tensor& x_TH, const Tensor& row_R) {
  NormedRows out;
  out.x_RH = kernels::gather_rows(x_TH, row_R);
  out.norm = model::norm_forward(params, head.final_norm, out.x_RH, params.compute_dtype());
  return out;
}

Tensor logits_of(const tensor::ParamStore& params, const LmHead& head, const Tensor& y_CH) {
  Tensor logits_CV = model::project(params, model::Linear{head.head_weight_id}, y_CH);
  if (head.softcap > 0) kernels::softcap(logits_CV, head.softcap);
  return logits_CV;
}

/// Calls work(first, count) for every chunk of R target tokens.
template <class Work>
void for_each_chunk(int64_t R, int64_t vocab_size, const Work& work) {
  const int64_t chunk = head_chunk_tokens(vocab_size);
  for (int64_t first = 0; first < R; first += chunk) work(first, std::min(chunk, R - first));
}

}  // namespace

void LossSums::merge(const LossSums& other) {
  nll.merge(other.nll);
  entropy.merge(other.entropy);
  router.merge(other.router);
  num_top1 += other.num_top1;
  num_targets += other.num_targets;
}

int64_t head_chunk_tokens(int64_t vocab_size) {
  LS_CHECK(vocab_size > 0, "vocab_size = {}", vocab_size);
  constexpr int64_t kLogits = int64_t{1} << 26, kStep = 64;
  return std::clamp<int64_t>(kLogits / vocab_size / kStep * kStep, 128, 1024);
}

int64_t num_head_chunks(int64_t num_targets, int64_t vocab_size) {
  const int64_t chunk = head_chunk_tokens(vocab_size);
  return (num_targets + chunk - 1) / chunk;
}

HeadBackward lm_head_backward(const tensor::ParamStore& params, const LmHead& head, const Tensor& x_TH,
                              const model::GrainInput& grain, double divisor, tensor::GradSink& sink) {
  const profile::Scope span(profile::Kind::Head);
  LS_CHECK(divisor > 0, "divisor = {}", divisor);
  const Targets targets = find_targets(grain);
  const int64_t R = targets.row_R.numel();
  HeadBackward out;
  out.dx_TH = at::zeros(x_TH.sizes(), x_TH.scalar_type());
  if (R == 0) {
    out.nll_per_doc.assign(static_cast<size_t>(grain.num_docs()), 0.0);
    return out;
  }

  const Tensor& w_VH = params.weight(head.head_weight_id);
  const NormedRows rows = norm_rows(params, head, x_TH, targets.row_R);
  Tensor dy_RH = at::empty(rows.norm.y_RN.sizes(), params.compute_dtype());
  TokenStatistics tokens;
  for_each_chunk(R, w_VH.size(0), [&](int64_t first, int64_t count) {
    const Tensor y_CH = rows.norm.y_RN.narrow(0, first, count);
    Tensor logits_CV = logits_of(params, head, y_CH);
    const Tensor capped_CV = head.softcap > 0 ? logits_CV.clone() : Tensor{};
    tokens.append(kernels::cross_entropy(logits_CV, targets.target_R.narrow(0, first, count), 1 / divisor, true));
    Tensor& dlogits_CV = logits_CV;
    if (head.softcap > 0) kernels::softcap_backward(dlogits_CV, capped_CV, head.softcap);
    dy_RH.narrow(0, first, count).copy_(kernels::linear_backward_input(dlogits_CV, w_VH));
    model::add_weight_gradient(head.head_weight_id, dlogits_CV, y_CH, sink);
  });

  Tensor dx_RH = at::zeros_like(rows.x_RH);
  model::norm_backward(params, head.final_norm, dy_RH, rows.x_RH, rows.norm.state, dx_RH, sink);
  kernels::scatter_rows(out.dx_TH, targets.row_R, dx_RH);
  DocumentSums sums = sum_by_document(tokens, targets.doc_starts);
  out.sums = sums.sums;
  out.nll_per_doc = std::move(sums.nll_per_doc);
  return out;
}

LossSums lm_head_forward(const tensor::ParamStore& params, const LmHead& head, const Tensor& x_TH,
                         const model::GrainInput& grain) {
  const Targets targets = find_targets(grain);
  const int64_t R = targets.row_R.numel();
  if (R == 0) return {};
  const Tensor& w_VH = params.weight(head.head_weight_id);
  const NormedRows rows = norm_rows(params, head, x_TH, targets.row_R);
  TokenStatistics tokens;
  for_each_chunk(R, w_VH.size(0), [&](int64_t first, int64_t count) {
    Tensor logits_CV = logits_of(params, head, rows.norm.y_RN.narrow(0, first, count));
    tokens.append(kernels::cross_entropy(logits_CV, targets.target_R.narrow(0, first, count), 1, false));
  });
  return sum_by_document(tokens, targets.doc_starts).sums;
}

Tensor lm_head_logits(const tensor::ParamStore& params, const LmHead& head, const Tensor& x_TH, const Tensor& rows) {
  const NormedRows normed = norm_rows(params, head, x_TH, rows);
  return logits_of(params, head, normed.norm.y_RN).to(x_TH.scalar_type());
}

}  // namespace lockstep::loss
