#include "lockstep/base/error.h"
#include "lockstep/kernels/binary_cross_entropy.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/loss/classifier.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

/// Basic arithmetic alone in double here: what needs exponentials is in the kernels, which have the same bits everywhere.
namespace lockstep::loss {
namespace {

using at::Tensor;

/// Rows of a [D, C] tensor of float or double as double.
struct Rows {
  explicit Rows(const Tensor& x_DC) : wide(x_DC.to(at::kDouble)), C(x_DC.size(1)) {}
  std::span<const double> operator[](int64_t doc) const {
    return {wide.const_data_ptr<double>() + doc * C, static_cast<size_t>(C)};
  }
  Tensor wide;
  int64_t C;
};

void count_document(ClassLosses& out, size_t doc, double loss, bool right) {
  out.loss_per_doc[doc] = loss;
  out.sums.nll.add(loss);
  out.sums.num_top1 += right ? 1 : 0;
  ++out.sums.num_targets;
}

void single_label(const Tensor& logits_DC, std::span<const float> labels, double smoothing, double divisor,
                  ClassLosses& out) {
  const int64_t D = logits_DC.size(0), C = logits_DC.size(1);
  Tensor target_D = at::empty({D}, at::kInt);
  std::vector<bool> labelled(static_cast<size_t>(D));
  for (int64_t d = 0; d < D; ++d) {
    const auto label = static_cast<int64_t>(labels[static_cast<size_t>(d)]);
    LS_CHECK(label == kNoLabel || (label >= 0 && label < C), "label {} with {} classes", label, C);
    labelled[static_cast<size_t>(d)] = label != kNoLabel;
    target_D.mutable_data_ptr<int32_t>()[d] = label == kNoLabel ? 0 : static_cast<int32_t>(label);
  }
  Tensor grad_DC = logits_DC.clone();
  const auto entropy = kernels::cross_entropy(grad_DC, target_D, 1 / divisor, true);
  Tensor wide_grad_DC = grad_DC.to(at::kDouble);
  const Tensor nll_D = entropy.nll_C.to(at::kDouble), entropy_D = entropy.entropy_C.to(at::kDouble);
  const Rows logits(logits_DC);
  for (int64_t d = 0; d < D; ++d) {
    double* grad = wide_grad_DC.mutable_data_ptr<double>() + d * C;
    if (!labelled[static_cast<size_t>(d)]) {
      std::fill(grad, grad + C, 0.0);
      continue;
    }
    double loss = nll_D.const_data_ptr<double>()[d];
    if (smoothing > 0) {
      const auto target = static_cast<size_t>(target_D.const_data_ptr<int32_t>()[d]);
      double sum = 0;
      for (const double z : logits[d]) sum += z;
      // The mean over classes of -log p = log-sum-exp - z.
      loss = (1 - smoothing) * loss + smoothing * (loss + logits[d][target] - sum / static_cast<double>(C));
      for (int64_t c = 0; c < C; ++c) grad[c] -= smoothing / static_cast<double>(C) / divisor;
      grad[target] += smoothing / divisor;
    }
    out.sums.entropy.add(entropy_D.const_data_ptr<double>()[d]);
    count_document(out, static_cast<size_t>(d), loss, entropy.top1_C.const_data_ptr<bool>()[d]);
  }
  out.dlogits_DC = wide_grad_DC.to(logits_DC.scalar_type());
}

Tensor labels_like(const Tensor& logits_DC, std::span<const float> labels) {
  Tensor labels_DC = at::empty(logits_DC.sizes(), at::kFloat);
  std::copy(labels.begin(), labels.end(), labels_DC.mutable_data_ptr<float>());
  return labels_DC.to(logits_DC.scalar_type());
}

void multi_label(const Tensor& logits_DC, std::span<const float> labels, double divisor, ClassLosses& out) {
  const auto C = static_cast<double>(logits_DC.size(1));
  const Tensor labels_DC = labels_like(logits_DC, labels);
  const auto bce = kernels::binary_cross_entropy(logits_DC, labels_DC, 1 / (divisor * C));
  const Rows losses(bce.loss_DC), logits(logits_DC), wanted(labels_DC);
  for (int64_t d = 0; d < logits_DC.size(0); ++d) {
    double sum = 0;
    bool right = true;
    for (size_t c = 0; c < losses[d].size(); ++c) {
      sum += losses[d][c];
      right = right && (logits[d][c] > 0) == (wanted[d][c] > 0.5);
    }
    count_document(out, static_cast<size_t>(d), sum / C, right);
  }
  out.dlogits_DC = bce.grad_DC;
}

void regression(const Tensor& logits_DC, std::span<const float> labels, double divisor, ClassLosses& out) {
  const int64_t D = logits_DC.size(0), C = logits_DC.size(1);
  Tensor grad_DC = at::empty(logits_DC.sizes(), at::kDouble);
  const Rows logits(logits_DC);
  for (int64_t d = 0; d < D; ++d) {
    double sum = 0;
    for (int64_t c = 0; c < C; ++c) {
      const double error =
          logits[d][static_cast<size_t>(c)] - static_cast<double>(labels[static_cast<size_t>(d * C + c)]);
      sum += error * error;
      grad_DC.mutable_data_ptr<double>()[d * C + c] = 2 * error / (static_cast<double>(C) * divisor);
    }
    count_document(out, static_cast<size_t>(d), sum / static_cast<double>(C), false);
  }
  out.dlogits_DC = grad_DC.to(logits_DC.scalar_type());
}

/// As the losses above count it.
bool is_right(Problem problem, std::span<const float> logits, std::span<const float> labels) {
  switch (problem) {
    case Problem::SingleLabel:
      return std::max_element(logits.begin(), logits.end()) - logits.begin() == static_cast<int64_t>(labels[0]);
    case Problem::MultiLabel:
      return std::equal(logits.begin(), logits.end(), labels.begin(),
                        [](float logit, float label) { return (logit > 0) == (label > 0.5F); });
    case Problem::Regression: break;
  }
  return false;
}

void own_loss(const Tensor& logits_DC, std::span<const float> labels, const ClassifierLoss& loss, double divisor,
              ClassLosses& out) {
  const int64_t D = logits_DC.size(0);
  const auto C = static_cast<size_t>(logits_DC.size(1));
  const size_t labels_per_row = loss.problem == Problem::SingleLabel ? 1 : C;
  const Tensor all_DC = logits_DC.to(at::kFloat).contiguous();
  std::vector<int64_t> docs;
  std::vector<float> logits, wanted;
  for (int64_t d = 0; d < D; ++d) {
    const auto of_row = labels.subspan(static_cast<size_t>(d) * labels_per_row, labels_per_row);
    if (loss.problem == Problem::SingleLabel && of_row[0] == static_cast<float>(kNoLabel)) continue;
    docs.push_back(d);
    const auto* row = all_DC.const_data_ptr<float>() + d * static_cast<int64_t>(C);
    logits.insert(logits.end(), row, row + C);
    wanted.insert(wanted.end(), of_row.begin(), of_row.end());
  }
  std::vector<float> losses(docs.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> gradient(logits.size(), std::numeric_limits<float>::quiet_NaN());
  if (!docs.empty()) {
    (*loss.own)({std::ssize(docs), static_cast<int64_t>(C), logits, wanted}, losses, gradient);
  }
  Tensor grad_DC = at::zeros(logits_DC.sizes(), at::kDouble);
  for (size_t i = 0; i < docs.size(); ++i) {
    double* grad = grad_DC.mutable_data_ptr<double>() + docs[i] * static_cast<int64_t>(C);
    for (size_t c = 0; c < C; ++c) grad[c] = static_cast<double>(gradient[i * C + c]) / divisor;
    count_document(out, static_cast<size_t>(docs[i]), losses[i],
                   is_right(loss.problem, std::span(logits).subspan(i * C, C),
                            std::span(wanted).subspan(i * labels_per_row, labels_per_row)));
  }
  out.dlogits_DC = grad_DC.to(logits_DC.scalar_type());
}

}  // namespace

ClassLosses class_losses(const Tensor& logits_DC, std::span<const float> labels, const ClassifierLoss& loss,
                         double divisor) {
  LS_CHECK(divisor > 0, "divisor = {}", divisor);
  LS_CHECK(loss.label_smoothing >= 0 && loss.label_smoothing <= 1, "label_smoothing = {}", loss.label_smoothing);
  LS_CHECK(loss.label_smoothing == 0 || loss.problem == Problem::SingleLabel, "label smoothing needs single labels");
  const int64_t D = logits_DC.size(0), C = logits_DC.size(1);
  const int64_t wanted = loss.problem == Problem::SingleLabel ? D : D * C;
  LS_CHECK(static_cast<int64_t>(labels.size()) == wanted, "{} labels for {} documents and {} classes", labels.size(), D,
           C);
  ClassLosses out;
  out.loss_per_doc.assign(static_cast<size_t>(D), 0.0);
  if (loss.own) {
    own_loss(logits_DC, labels, loss, divisor, out);
    return out;
  }
  switch (loss.problem) {
    case Problem::SingleLabel: single_label(logits_DC, labels, loss.label_smoothing, divisor, out); break;
    case Problem::MultiLabel: multi_label(logits_DC, labels, divisor, out); break;
    case Problem::Regression: regression(logits_DC, labels, divisor, out); break;
  }
  return out;
}

}  // namespace lockstep::loss
