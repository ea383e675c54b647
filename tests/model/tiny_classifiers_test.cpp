#include "model/classifier_reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>

/// Every value of reference.json of the tiny encoders, from both spellings of config.json, and the tiny decoders as
/// classifiers (classifier_reference.json).
namespace lockstep::testing {
namespace {

struct TinyClassifier {
  std::string name;
  std::string config_file;
};

class TinyEncoders : public ::testing::TestWithParam<TinyClassifier> {
 protected:
  std::filesystem::path folder() const {
    return std::filesystem::path(LOCKSTEP_TEST_DATA) / "models/tiny" / GetParam().name;
  }
  model::EncoderConfig config() const { return model::read_encoder_config(folder(), GetParam().config_file); }
  ClassifierReference reference() const { return read_classifier_reference(folder() / "reference.json"); }
  /// Six products a layer.
  Tolerance float32() const {
    return classifier_tolerance(config().num_layers, 6, std::max(config().hidden_size, config().intermediate_size));
  }
};

TEST_P(TinyEncoders, Float32LogitsLossesAndGradientsAreThoseOfTransformers) {
  ClassifierRig rig(config(), at::kFloat);
  const auto weights = rig.load(folder());
  EXPECT_TRUE(weights.made_new.empty());
  EXPECT_TRUE(weights.unused.empty());
  const ClassifierReference wanted = reference();
  ASSERT_EQ(wanted.cases.size(), 3U);
  for (const ClassifierReferenceCase& c : wanted.cases) expect_case(rig, c, float32());
}

TEST_P(TinyEncoders, AdamWTrajectoryIsThatOfTransformers) {
  ClassifierRig rig(config(), at::kFloat);
  rig.load(folder());
  expect_classifier_trajectory(rig, reference(), float32());
}

TEST_P(TinyEncoders, Bfloat16StaysNearFloat32) {
  ClassifierRig rig(config(), at::kBFloat16);
  rig.load(folder());
  for (const ClassifierReferenceCase& c : reference().cases)
    expect_case(rig, c, classifier_bfloat16_tolerance(config().num_layers));
}

std::vector<TinyClassifier> tiny_encoders() {
  std::vector<TinyClassifier> out;
  for (const char* name : {"bert", "roberta", "distilbert"})
    for (const char* config_file : {"config.json", "config.v5.json"}) out.push_back({name, config_file});
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, TinyEncoders, ::testing::ValuesIn(tiny_encoders()), [](const auto& test) {
  std::string name = test.param.name + "_" + test.param.config_file;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

class TinyDecoderClassifiers : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyDecoderClassifiers, LogitsLossesAndGradientsAreThoseOfTransformers) {
  const auto data = std::filesystem::path(LOCKSTEP_TEST_DATA) / "models";
  model::DecoderConfig config = model::read_decoder_classifier_config(data / "tiny" / GetParam());
  config.num_labels = 3;
  ClassifierRig rig(config, at::kFloat);
  const auto weights = rig.load(data / "tiny" / GetParam());
  EXPECT_EQ(weights.made_new, (std::vector<tensor::ParamId>{rig.id("score.weight")}));
  EXPECT_EQ(weights.unused.size(), config.tie_word_embeddings ? 0U : 1U) << "lm_head.weight";
  rig.set("score.weight", [](int64_t i) {
    return static_cast<double>(static_cast<float>(0.05 * std::sin(static_cast<double>(i + 1))));
  });
  const auto cases = read_decoder_classifier_cases(data / "classifier_reference.json", GetParam());
  ASSERT_EQ(cases.size(), 3U);
  const Tolerance tolerance =
      classifier_tolerance(config.num_layers, 7, std::max(config.hidden_size, config.intermediate_size));
  for (const ClassifierReferenceCase& c : cases) expect_case(rig, c, tolerance);
}

INSTANTIATE_TEST_SUITE_P(All, TinyDecoderClassifiers, ::testing::Values("llama", "qwen2", "qwen3"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace lockstep::testing
