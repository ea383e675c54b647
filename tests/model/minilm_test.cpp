#include "model/classifier_reference.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>

/// all-MiniLM-L6-v2 against values computed by transformers. The model is not in the repository: it lies where
/// LOCKSTEP_MINILM says, or in .models of the source tree.
namespace lockstep::testing {
namespace {

std::filesystem::path minilm_folder() {
  const char* given = std::getenv("LOCKSTEP_MINILM");
  std::filesystem::path folder = given != nullptr ? given : LOCKSTEP_MINILM_DEFAULT;
  if (!std::filesystem::exists(folder / "model.safetensors"))
    throw Error::environment("{} has no model.safetensors. Run scripts/fetch-minilm {}, or set LOCKSTEP_MINILM to the "
                             "folder that has all-MiniLM-L6-v2.",
                             folder.string(), folder.string());
  return folder;
}

std::filesystem::path minilm_reference() {
  return std::filesystem::path(LOCKSTEP_TEST_DATA) / "models/all-MiniLM-L6-v2/reference.json";
}

class MiniLm : public ::testing::Test {
 protected:
  MiniLm() : config_(model::read_encoder_config(minilm_folder())) { config_.num_labels = 3; }

  /// With the head of reference.json.
  std::unique_ptr<ClassifierRig> make_rig(at::ScalarType dtype) const {
    auto out = std::make_unique<ClassifierRig>(config_, dtype);
    const auto weights = out->load(minilm_folder());
    EXPECT_EQ(weights.made_new, (std::vector<tensor::ParamId>{out->id("classifier.weight"), out->id("classifier.bias")}));
    EXPECT_TRUE(weights.unused.empty());
    out->set("classifier.weight", [](int64_t i) {
      return static_cast<double>(static_cast<float>(0.05 * std::sin(static_cast<double>(i + 1))));
    });
    out->set("classifier.bias", [](int64_t i) { return 0.1 * (1 - static_cast<double>(i)); });
    return out;
  }
  Tolerance float32() const { return classifier_tolerance(config_.num_layers, 6, config_.intermediate_size); }

  model::EncoderConfig config_;
};

TEST_F(MiniLm, HiddenStatesPoolerAndSentenceVectorsAreThoseOfTransformers) {
  const auto rig = make_rig(at::kFloat);
  const nlohmann::json all = nlohmann::json::parse(read_file(minilm_reference()));
  const nlohmann::json& wanted = all.at("encoder");
  const ClassifierReference reference = read_classifier_reference(minilm_reference());
  const model::GrainInput grain = pack_classes(reference.find("sentences").documents);
  const at::Tensor x_TH = rig->forward(grain);
  loss::ClassifierHead quiet = rig->head();
  const loss::ClassifierState state = loss::classifier_logits(rig->store(), quiet, x_TH, grain);

  // Values of the hidden states are of size 0.5 after a norm; the largest is near 1.
  const double bound = float32().logits;
  const int64_t H = config_.hidden_size;
  std::vector<std::vector<double>> sentences;
  for (int64_t d = 0; d < grain.num_docs(); ++d) {
    const auto doc = static_cast<size_t>(d);
    const int64_t begin = grain.doc_starts[doc], end = grain.doc_starts[doc + 1];
    const at::Tensor mean = x_TH.narrow(0, begin, end - begin).to(at::kDouble).mean(0);
    const double size = std::sqrt(mean.pow(2).sum().item<double>());
    sentences.emplace_back();
    for (int64_t h = 0; h < H; ++h) sentences.back().push_back(mean.const_data_ptr<double>()[h] / size);
    for (size_t h = 0; h < 8; ++h) {
      EXPECT_NEAR(x_TH.const_data_ptr<float>()[begin * H + static_cast<int64_t>(h)],
                  wanted.at("hidden_first8").at(doc).at(h).get<double>(), bound);
      EXPECT_NEAR(state.hidden_DH.const_data_ptr<float>()[d * H + static_cast<int64_t>(h)],
                  wanted.at("pooler_first8").at(doc).at(h).get<double>(), bound);
      EXPECT_NEAR(sentences.back()[h], wanted.at("sentence_first8").at(doc).at(h).get<double>(), bound);
    }
  }
  for (size_t i = 0; i < sentences.size(); ++i)
    for (size_t j = 0; j < sentences.size(); ++j) {
      double cosine = 0;
      for (size_t h = 0; h < sentences[i].size(); ++h) cosine += sentences[i][h] * sentences[j][h];
      EXPECT_NEAR(cosine, wanted.at("cosines").at(i).at(j).get<double>(), bound);
    }
}

TEST_F(MiniLm, Float32LogitsLossesAndGradientsAreThoseOfTransformers) {
  const auto rig = make_rig(at::kFloat);
  const ClassifierReference wanted = read_classifier_reference(minilm_reference());
  ASSERT_EQ(wanted.cases.size(), 2U);
  for (const ClassifierReferenceCase& c : wanted.cases) expect_case(*rig, c, float32());
}

TEST_F(MiniLm, AdamWTrajectoryIsThatOfTransformers) {
  const auto rig = make_rig(at::kFloat);
  expect_classifier_trajectory(*rig, read_classifier_reference(minilm_reference()), float32());
}

TEST_F(MiniLm, Bfloat16StaysNearFloat32) {
  const auto rig = make_rig(at::kBFloat16);
  for (const ClassifierReferenceCase& c : read_classifier_reference(minilm_reference()).cases)
    expect_case(*rig, c, classifier_bfloat16_tolerance(config_.num_layers));
}

}  // namespace
}  // namespace lockstep::testing
