#include "lockstep/train/finite.h"

#include <ATen/ops/isfinite.h>

#include <cmath>

namespace lockstep::train {

bool all_finite(const at::Tensor& values) { return at::isfinite(values).all().item<bool>(); }

void FiniteCheck::add(tensor::ParamId id, const at::Tensor& grad) {
  if (first_ < 0 && !all_finite(grad)) first_ = id;
}

void FiniteCheck::add_rows(tensor::ParamId id, const at::Tensor& /*rows*/, const at::Tensor& grad) { add(id, grad); }

std::vector<int64_t> bad_samples(const at::Tensor& x_TH, const model::GrainInput& grain) {
  std::vector<int64_t> ids;
  for (int64_t doc = 0; doc < grain.num_docs(); ++doc) {
    const int64_t begin = grain.doc_starts[static_cast<size_t>(doc)];
    const int64_t end = grain.doc_starts[static_cast<size_t>(doc) + 1];
    if (!all_finite(x_TH.narrow(0, begin, end - begin))) ids.push_back(grain.sample_ids[static_cast<size_t>(doc)]);
  }
  return ids;
}

std::vector<int64_t> bad_documents(std::span<const double> loss_per_doc, const model::GrainInput& grain) {
  std::vector<int64_t> ids;
  for (size_t doc = 0; doc < loss_per_doc.size(); ++doc) {
    if (!std::isfinite(loss_per_doc[doc])) ids.push_back(grain.sample_ids[doc]);
  }
  return ids;
}

}  // namespace lockstep::train
