#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/loss/classifier.h"
#include "model/classifier_rig.h"
#include "model/test_configs.h"
#include "model/test_encoders.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace lockstep::testing {
namespace {

using loss::class_losses;
using loss::ClassifierLoss;
using loss::ClassLosses;
using loss::Problem;
using ReferenceJson = nlohmann::json;

at::Tensor matrix_of(const std::vector<std::vector<double>>& rows, at::ScalarType dtype) {
  at::Tensor out = at::empty({static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())}, at::kDouble);
  auto* values = out.mutable_data_ptr<double>();
  for (const auto& row : rows) values = std::copy(row.begin(), row.end(), values);
  return out.to(dtype);
}

std::vector<float> flat_labels(const ReferenceJson& labels) {
  std::vector<float> out;
  for (const ReferenceJson& label : labels) {
    const auto one = label.is_array() ? label.get<std::vector<float>>() : std::vector{label.get<float>()};
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

/// torch's losses and transformers' LabelSmoother on given logits (tests/data/models/make_classifier_reference.py).
TEST(ClassLosses, AreThoseOfTorchAndTransformers) {
  const ReferenceJson all = ReferenceJson::parse(
      read_file(std::filesystem::path(LOCKSTEP_TEST_DATA) / "models/classifier_reference.json"))["losses"];
  const auto rows = all.at("logits").get<std::vector<std::vector<double>>>();
  int compared = 0;
  for (const ReferenceJson& c : all.at("cases")) {
    const std::string name = c.at("name");
    SCOPED_TRACE(name);
    const ClassifierLoss loss{.problem = name == "binary_cross_entropy" ? Problem::MultiLabel
                                         : name == "mean_squared_error" ? Problem::Regression
                                                                        : Problem::SingleLabel,
                              .label_smoothing = c.value("epsilon", 0.0)};
    // One of the three documents of the single-label cases has no label.
    const double divisor = loss.problem == Problem::SingleLabel ? 2 : 3;
    const ClassLosses got = class_losses(matrix_of(rows, at::kFloat), flat_labels(c.at("labels")), loss, divisor);
    EXPECT_EQ(got.sums.num_targets, static_cast<int64_t>(divisor));
    // Both sides are float32: a few roundings each of values of size 20.
    const double wanted = c.at("loss");
    EXPECT_NEAR(got.sums.nll.value() / divisor, wanted, 8 * 0x1p-24 * std::max(1.0, wanted));
    const at::Tensor dlogits = got.dlogits_DC.to(at::kDouble);
    const at::Tensor wanted_dlogits = matrix_of(c.at("dlogits").get<std::vector<std::vector<double>>>(), at::kDouble);
    EXPECT_LT((dlogits - wanted_dlogits).abs().max().item<double>(),
              8 * 0x1p-24 * std::max(1.0, wanted_dlogits.abs().max().item<double>()));
    ++compared;
  }
  EXPECT_EQ(compared, 5);
}

TEST(ClassLosses, CountRightAnswersAndEntropy) {
  const at::Tensor logits = matrix_of({{2, 1, 1}, {0, 0, 0}, {-1, 3, 5}}, at::kDouble);
  const ClassLosses single = class_losses(logits, std::vector<float>{0, 1, 2}, {}, 1);
  EXPECT_EQ(single.sums.num_top1, 2) << "of equal logits the lowest class is the answer";
  const auto entropy = [](std::vector<double> z) {
    double total = 0, out = 0;
    for (const double v : z) total += std::exp(v);
    for (const double v : z) out -= std::exp(v) / total * (v - std::log(total));
    return out;
  };
  EXPECT_NEAR(single.sums.entropy.value(), entropy({2, 1, 1}) + std::log(3.0) + entropy({-1, 3, 5}), 1e-12);
  EXPECT_NEAR(single.loss_per_doc[1], std::log(3.0), 1e-15);

  const ClassLosses multi = class_losses(logits, std::vector<float>{1, 1, 1, 0, 0, 0, 1, 1, 1}, {Problem::MultiLabel, 0}, 1);
  EXPECT_EQ(multi.sums.num_top1, 2);
  EXPECT_EQ(multi.sums.entropy.value(), 0);
}

TEST(ClassLosses, ADocumentWithoutALabelCountsForNothing) {
  const at::Tensor logits = matrix_of({{2, 1, 1}, {0, 7, 0}}, at::kFloat);
  const ClassLosses got = class_losses(logits, std::vector<float>{-100, 1}, {Problem::SingleLabel, 0.1}, 1);
  const ClassLosses alone = class_losses(matrix_of({{0, 7, 0}}, at::kFloat), std::vector<float>{1}, {Problem::SingleLabel, 0.1}, 1);
  EXPECT_EQ(got.sums.nll.value(), alone.sums.nll.value());
  EXPECT_EQ(got.sums.num_targets, 1);
  EXPECT_EQ(got.loss_per_doc[0], 0);
  EXPECT_EQ(got.dlogits_DC.select(0, 0).abs().max().item<float>(), 0);
  EXPECT_TRUE(same_bits(got.dlogits_DC.narrow(0, 1, 1).contiguous(), alone.dlogits_DC));
}

TEST(ClassLosses, RefuseWhatDoesNotFit) {
  const at::Tensor logits = matrix_of({{2, 1, 1}}, at::kFloat);
  EXPECT_THROW(class_losses(logits, std::vector<float>{3}, {}, 1), Error);
  EXPECT_THROW(class_losses(logits, std::vector<float>{1, 0}, {}, 1), Error);
  EXPECT_THROW(class_losses(logits, std::vector<float>{1}, {Problem::MultiLabel, 0}, 1), Error);
  EXPECT_THROW(class_losses(logits, std::vector<float>{1, 0, 0}, {Problem::MultiLabel, 0.1}, 1), Error);
  EXPECT_THROW(class_losses(logits, std::vector<float>{1}, {}, 0), Error);
}

// ---- heads -----------------------------------------------------------------

TEST(ClassifierHead, SumsOfGrainsAddUpExactlyInAnyGrouping) {
  ClassifierRig rig(small_bert(), at::kFloat);
  rig.randomise(3, 0.3);
  // Rows of the stream stand in for the encoder: the head sees every document's first row alone.
  std::vector<ClassDocument> documents;
  std::vector<float> labels;
  for (uint64_t d = 0; d < 6; ++d) {
    documents.push_back(random_class_document(3 + static_cast<int64_t>(d), 48, d));
    labels.push_back(static_cast<float>(d % 3));
  }
  const auto whole_grain = pack_classes(documents);
  const at::Tensor x_TH = random_tensor({whole_grain.num_tokens(), 24}, at::kFloat, 9, 1);
  const auto whole = loss::classifier_forward(rig.store(), rig.head(), x_TH, whole_grain, labels, {});
  double sum = 0;
  ExactSum exact;
  for (const double loss : whole.loss_per_doc) exact.add(loss);
  for (const double loss : whole.loss_per_doc) sum += loss;
  EXPECT_EQ(whole.sums.nll.value(), exact.value());
  EXPECT_NEAR(whole.sums.nll.value(), sum, 1e-12);
  EXPECT_EQ(whole.sums.num_targets, 6);
  EXPECT_EQ(whole.logits_DC.sizes(), (at::IntArrayRef{6, 3}));
  EXPECT_EQ(whole.logits_DC.scalar_type(), at::kFloat);
}

TEST(ClassifierHead, LogitsAloneNeedNoLabels) {
  ClassifierRig rig(small_distilbert(), at::kBFloat16);
  rig.randomise(3, 0.3);
  const auto grain = pack_classes({random_class_document(5, 48, 0), random_class_document(7, 48, 1)});
  const auto with = rig.evaluate(grain, {0, 1}, {});
  const auto without = rig.evaluate(grain, {}, {});
  EXPECT_TRUE(same_bits(with.logits_DC, without.logits_DC));
  EXPECT_EQ(without.sums.num_targets, 0);
  EXPECT_EQ(without.logits_DC.scalar_type(), at::kFloat) << "not rounded to the compute dtype";
}

TEST(ClassifierHead, GradientReachesOnlyTheRowThatSpeaks) {
  const auto rows_with_gradient = [](ClassifierRig& rig, const model::GrainInput& grain, int64_t width) {
    rig.randomise(3, 0.3);
    const at::Tensor x_TH = random_tensor({grain.num_tokens(), width}, at::kFloat, 9, 1);
    SumSink sink(rig.layout(), at::kFloat);
    const auto back = loss::classifier_backward(rig.store(), rig.head(), x_TH, grain,
                                                std::vector<float>(static_cast<size_t>(grain.num_docs()), 1), {}, 1, sink);
    std::vector<int64_t> rows;
    for (int64_t t = 0; t < grain.num_tokens(); ++t)
      if (back.dx_TH.select(0, t).abs().max().item<float>() > 0) rows.push_back(t);
    return rows;
  };
  ClassifierRig encoder(small_roberta(), at::kFloat);
  EXPECT_EQ(rows_with_gradient(encoder, pack_classes({{{5, 6, 7}, {}}, {{8, 9}, {}}}), 24), (std::vector<int64_t>{0, 3}));

  model::DecoderConfig config = small_llama();
  config.num_labels = 3;
  config.pad_token_id = 2;
  ClassifierRig decoder(config, at::kFloat);
  // The last token that is not padding; a document of padding alone speaks through its first token.
  const auto grain = pack_classes({{{5, 6, 7}, {}}, {{8, 2, 9, 2, 2}, {}}, {{2, 2}, {}}});
  EXPECT_EQ(rows_with_gradient(decoder, grain, 24), (std::vector<int64_t>{2, 5, 8}));
}

TEST(ClassifierHead, DropoutIsOffInEvaluationAndOfTheSampleInTraining) {
  ClassifierRig rig(small_bert(), at::kFloat);
  rig.randomise(3, 0.3);
  const std::vector<ClassDocument> documents{random_class_document(5, 48, 0), random_class_document(7, 48, 1)};
  const auto grain = pack_classes(documents);
  const auto quiet = rig.evaluate(grain, {0, 1}, {});
  rig.head().dropout = 0.5;
  EXPECT_TRUE(same_bits(rig.evaluate(grain, {0, 1}, {}).logits_DC, quiet.logits_DC));
  const at::Tensor x_TH = rig.forward(grain);
  const auto trained = loss::classifier_logits(rig.store(), rig.head(), x_TH, grain);
  EXPECT_FALSE(same_bits(trained.logits_DC, quiet.logits_DC));
  // The second document alone, as the same sample, has the same mask.
  const auto alone_grain = pack_classes({documents[1]}, 1);
  const auto alone = loss::classifier_logits(rig.store(), rig.head(), x_TH.narrow(0, 5, 7).contiguous(), alone_grain);
  EXPECT_TRUE(same_bits((alone.hidden_DH == 0).contiguous(), (trained.hidden_DH.narrow(0, 1, 1) == 0).contiguous()));
  rig.head().seed = 1;
  EXPECT_FALSE(same_bits(loss::classifier_logits(rig.store(), rig.head(), x_TH, grain).logits_DC, trained.logits_DC));
}

}  // namespace
}  // namespace lockstep::testing
