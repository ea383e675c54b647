// A loss of the user's in place of the problem's own.
#include "lockstep/loss/classifier.h"

#include <ATen/ops/arange.h>

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

namespace lockstep::loss {
namespace {

at::Tensor logits_4x3() { return at::arange(12, at::kFloat).reshape({4, 3}).sin(); }

/// Loss: 10 x label + first logit. Gradient: its place in the array.
std::shared_ptr<const OwnLoss> counting_loss(std::vector<OwnLossInput>& seen, std::vector<float>& labels_seen) {
  return std::make_shared<const OwnLoss>([&](const OwnLossInput& input, std::span<float> losses, std::span<float> gradient) {
    seen.push_back(input);
    labels_seen.assign(input.labels.begin(), input.labels.end());
    for (size_t row = 0; row < losses.size(); ++row) losses[row] = 10 * input.labels[row] + input.logits[3 * row];
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i);
  });
}

TEST(OwnLoss, GetsRowsWithLabelsAlone) {
  std::vector<OwnLossInput> seen;
  std::vector<float> labels_seen;
  const ClassifierLoss loss{.problem = Problem::SingleLabel, .own = counting_loss(seen, labels_seen)};
  const at::Tensor logits = logits_4x3();
  const std::vector<float> labels = {2, static_cast<float>(kNoLabel), 0, 1};
  const ClassLosses out = class_losses(logits, labels, loss, 5);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].num_rows, 3);
  EXPECT_EQ(seen[0].num_classes, 3);
  EXPECT_EQ(labels_seen, (std::vector<float>{2, 0, 1}));
  EXPECT_EQ(out.sums.num_targets, 3);
  EXPECT_EQ(out.loss_per_doc[1], 0);
  EXPECT_FLOAT_EQ(static_cast<float>(out.loss_per_doc[0]), 20 + logits[0][0].item<float>());
  EXPECT_NEAR(out.sums.nll.value(), out.loss_per_doc[0] + out.loss_per_doc[2] + out.loss_per_doc[3], 1e-12);
  // The second row of what the loss saw is the third document.
  EXPECT_FLOAT_EQ(out.dlogits_DC[2][1].item<float>(), 4.0F / 5);
  EXPECT_EQ(out.dlogits_DC[1].abs().sum().item<float>(), 0);
}

TEST(OwnLoss, CountsRightAnswersAsTheProblemDoes) {
  std::vector<OwnLossInput> seen;
  std::vector<float> labels_seen;
  const at::Tensor logits = logits_4x3();
  std::vector<float> labels;
  for (int64_t row = 0; row < 4; ++row) labels.push_back(static_cast<float>(logits[row].argmax().item<int64_t>()));
  labels[3] = labels[3] == 0 ? 1 : 0;
  const ClassifierLoss own{.problem = Problem::SingleLabel, .own = counting_loss(seen, labels_seen)};
  EXPECT_EQ(class_losses(logits, labels, own, 1).sums.num_top1, 3);
  EXPECT_EQ(class_losses(logits, labels, {.problem = Problem::SingleLabel}, 1).sums.num_top1, 3);
}

TEST(OwnLoss, WhatItForgetsIsNotANumber) {
  const auto nothing = std::make_shared<const OwnLoss>([](const OwnLossInput&, std::span<float>, std::span<float>) {});
  const ClassLosses out = class_losses(logits_4x3(), std::vector<float>(12, 1), {.problem = Problem::MultiLabel, .own = nothing}, 1);
  EXPECT_TRUE(std::isnan(out.sums.nll.value()) || !std::isfinite(out.loss_per_doc[0]));
  EXPECT_TRUE(std::isnan(out.dlogits_DC[0][0].item<float>()));
}

}  // namespace
}  // namespace lockstep::loss
