#include "model/classifier_rig.h"
#include "model/test_configs.h"
#include "model/test_encoders.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

/// Gradients of whole classifiers in float64 against central differences, two documents in the grain.
namespace lockstep::testing {
namespace {

struct ClassifierCase {
  std::string name;
  std::shared_ptr<ClassifierRig> rig;
  int64_t vocab_size, num_types;
  loss::ClassifierLoss objective;
  std::vector<float> labels;
};

std::shared_ptr<ClassifierRig> encoder_rig(model::EncoderConfig config, double dropout, const std::string& activation = "") {
  if (!activation.empty()) config.activation = activation;
  auto rig = std::make_shared<ClassifierRig>(
      config, at::kDouble, model::EncoderOptions{.hidden_dropout = dropout, .attention_dropout = dropout, .seed = 5});
  rig->head().dropout = dropout;
  return rig;
}

std::shared_ptr<ClassifierRig> decoder_rig() {
  model::DecoderConfig config = small_qwen3();
  config.num_labels = 3;
  return std::make_shared<ClassifierRig>(config, at::kDouble);
}

void expect_numeric_gradients(const ClassifierCase& c) {
  SCOPED_TRACE(c.name);
  ClassifierRig& rig = *c.rig;
  rig.randomise(3, 0.3);
  const model::GrainInput grain = pack_classes({random_class_document(9, c.vocab_size, 0, c.num_types),
                                                random_class_document(13, c.vocab_size, 1, c.num_types)});
  constexpr double kDivisor = 2;
  SumSink sink(rig.layout(), at::kDouble);
  rig.backward(grain, c.labels, c.objective, kDivisor, model::Keep::All, sink);

  // As tests/model/jacobian_test.cpp: central differences are about 1e-10 off at this step.
  constexpr double kStep = 1e-5, kBound = 1e-8;
  for (tensor::ParamId id = 0; id < rig.layout().num_params(); ++id) {
    const at::Tensor grad = sink.grad(id);
    auto* weight = at::Tensor(rig.store().weight(id)).mutable_data_ptr<double>();
    // The largest gradient and four others.
    std::vector<int64_t> elements{grad.abs().argmax().item<int64_t>()};
    for (int64_t k = 0; k < 4; ++k) elements.push_back((k * 7919 + 13 * id) % grad.numel());
    for (const int64_t i : elements) {
      const double kept = weight[i];
      weight[i] = kept + kStep;
      const double above = rig.loss_with_dropout(grain, c.labels, c.objective, kDivisor);
      weight[i] = kept - kStep;
      const double below = rig.loss_with_dropout(grain, c.labels, c.objective, kDivisor);
      weight[i] = kept;
      EXPECT_NEAR(grad.const_data_ptr<double>()[i], (above - below) / (2 * kStep), kBound)
          << rig.layout().spec(id).name << " element " << i;
    }
    // A key's bias moves all scores of a query alike, so its gradient is zero; nothing else may be.
    const std::string& name = rig.layout().spec(id).name;
    const bool key_bias = name.ends_with("key.bias") || name.ends_with("k_lin.bias");
    EXPECT_TRUE(key_bias || sink.norm(id) > 1e-4) << name << ": " << sink.norm(id);
  }
}

const loss::ClassifierLoss kSmoothed{.problem = loss::Problem::SingleLabel, .label_smoothing = 0.2};
const loss::ClassifierLoss kMultiLabel{.problem = loss::Problem::MultiLabel};
const loss::ClassifierLoss kRegression{.problem = loss::Problem::Regression};

TEST(ClassifierJacobian, OfBertIsTheNumericOne) {
  expect_numeric_gradients({"single label", encoder_rig(small_bert(), 0), 48, 2, {}, {1, 2}});
  expect_numeric_gradients({"smoothed, dropout", encoder_rig(small_bert(), 0.2), 48, 2, kSmoothed, {1, 2}});
  expect_numeric_gradients({"multi label", encoder_rig(small_bert(), 0, "relu"), 48, 2, kMultiLabel, {1, 0, 1, 0, 0, 1}});
}

TEST(ClassifierJacobian, OfRobertaIsTheNumericOne) {
  expect_numeric_gradients({"regression", encoder_rig(small_roberta(), 0), 48, 1, kRegression, {1, -1, 0.5, 0, 2, 1}});
  expect_numeric_gradients({"single label, dropout", encoder_rig(small_roberta(), 0.2), 48, 1, {}, {1, 2}});
}

TEST(ClassifierJacobian, OfDistilbertIsTheNumericOne) {
  expect_numeric_gradients({"single label", encoder_rig(small_distilbert(), 0), 48, 0, {}, {0, 2}});
  expect_numeric_gradients({"multi label, dropout", encoder_rig(small_distilbert(), 0.2), 48, 0, kMultiLabel, {1, 0, 1, 0, 0, 1}});
}

TEST(ClassifierJacobian, OfADecoderIsTheNumericOne) {
  expect_numeric_gradients({"single label", decoder_rig(), 48, 0, {}, {0, 2}});
  expect_numeric_gradients({"regression", decoder_rig(), 48, 0, kRegression, {1, -1, 0.5, 0, 2, 1}});
}

}  // namespace
}  // namespace lockstep::testing
