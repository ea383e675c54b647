#include "model/temporary_folder.h"
#include "model/classifier_rig.h"
#include "model/test_configs.h"
#include "model/test_encoders.h"

#include "lockstep/base/error.h"
#include "lockstep/model/classifier_weights.h"
#include "lockstep/model/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>

namespace lockstep::testing {
namespace {

using tensor::NamedTensor;

/// A folder of one model, whose tensors a test renames and removes.
class ClassifierWeights : public ::testing::Test {
 protected:
  ClassifierWeights() : layout_(model::Encoder::param_specs(small_bert())) { fill(); }

  void fill() {
    for (tensor::ParamId id = 0; id < layout_.num_params(); ++id)
      stored_.push_back({layout_.spec(id).name,
                         random_tensor(layout_.spec(id).shape, at::kFloat, static_cast<uint64_t>(id), 1)});
  }
  at::Tensor& stored(const std::string& name) {
    return std::find_if(stored_.begin(), stored_.end(), [&](const NamedTensor& t) { return t.name == name; })->tensor;
  }
  void remove_where(const std::function<bool(const std::string&)>& which) {
    std::erase_if(stored_, [&](const NamedTensor& t) { return which(t.name); });
  }
  void rename_all(const std::function<std::string(std::string)>& rename) {
    for (NamedTensor& t : stored_) t.name = rename(t.name);
  }

  model::ClassifierWeights load() {
    tensor::write_safetensors(folder_.path() / "model.safetensors", stored_);
    const tensor::WeightFiles files = tensor::WeightFiles::open(folder_.path());
    read_.clear();
    return model::load_classifier_weights(layout_, files, options_, [&](tensor::ParamId id, const at::Tensor& x) {
      read_.emplace(layout_.spec(id).name, x.clone());
    });
  }
  std::vector<std::string> names_made_new(const model::ClassifierWeights& weights) const {
    std::vector<std::string> names;
    for (const tensor::ParamId id : weights.made_new) names.push_back(layout_.spec(id).name);
    return names;
  }
  void expect_refused(const std::vector<std::string>& words) {
    try {
      load();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      for (const std::string& word : words)
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " not in: " << error.what();
    }
  }

  TemporaryFolder folder_;
  tensor::ParamLayout layout_;
  std::vector<NamedTensor> stored_;
  model::ClassifierWeightsOptions options_{.prefix = "bert.", .initializer_range = 0.02, .seed = 7};
  std::map<std::string, at::Tensor> read_;
};

constexpr const char* kQuery = "bert.encoder.layer.1.attention.self.query.weight";

TEST_F(ClassifierWeights, OfAWholeClassifierAreReadAsStored) {
  const auto weights = load();
  EXPECT_EQ(weights.stored_dtype, at::kFloat);
  EXPECT_TRUE(weights.made_new.empty());
  EXPECT_TRUE(weights.unused.empty());
  ASSERT_EQ(read_.size(), stored_.size());
  for (const NamedTensor& t : stored_) EXPECT_TRUE(same_bits(read_.at(t.name), t.tensor)) << t.name;
}

TEST_F(ClassifierWeights, OfABareEncoderGetThePrefixAndANewHead) {
  remove_where([](const std::string& name) { return name.starts_with("classifier."); });
  const at::Tensor query = stored(kQuery).clone();
  rename_all([](const std::string& name) { return name.substr(5); });
  stored_.push_back({"embeddings.position_ids", at::Tensor(random_tensor({1, 80}, at::kFloat, 1, 1)).to(at::kLong)});
  const auto weights = load();
  EXPECT_EQ(names_made_new(weights), (std::vector<std::string>{"classifier.weight", "classifier.bias"}));
  EXPECT_TRUE(weights.unused.empty()) << "position_ids follow from config.json";
  EXPECT_TRUE(same_bits(read_.at(kQuery), query));
  const tensor::ParamSpec& spec = layout_.spec(layout_.find("classifier.weight"));
  EXPECT_TRUE(same_bits(read_.at("classifier.weight"), model::new_parameter(spec, 0.02, 7)));
  EXPECT_EQ(read_.at("classifier.bias").abs().max().item<float>(), 0);
}

TEST_F(ClassifierWeights, OfAMaskedLanguageModelLackThePoolerAndListTheirOwnHead) {
  remove_where([](const std::string& name) { return name.starts_with("classifier.") || name.starts_with("bert.pooler."); });
  stored_.push_back({"cls.predictions.bias", random_tensor({48}, at::kFloat, 1, 1)});
  const auto weights = load();
  EXPECT_EQ(names_made_new(weights).size(), 4U);
  EXPECT_EQ(names_made_new(weights)[0], "bert.pooler.dense.weight");
  ASSERT_EQ(weights.unused.size(), 1U);
  EXPECT_TRUE(weights.unused[0].starts_with("cls.predictions.bias ("));
}

TEST_F(ClassifierWeights, WithTheOldNamesOfNormsAreTaken) {
  const at::Tensor gamma = stored("bert.embeddings.LayerNorm.weight").clone();
  rename_all([](std::string name) {
    if (name.ends_with("LayerNorm.weight")) return name.substr(0, name.size() - 6) + "gamma";
    if (name.ends_with("LayerNorm.bias")) return name.substr(0, name.size() - 4) + "beta";
    return name;
  });
  const auto weights = load();
  EXPECT_TRUE(weights.made_new.empty());
  EXPECT_TRUE(weights.unused.empty());
  EXPECT_TRUE(same_bits(read_.at("bert.embeddings.LayerNorm.weight"), gamma));
}

TEST_F(ClassifierWeights, WithAnotherNumberOfClassesAreRefusedUnlessAskedFor) {
  stored("classifier.weight") = random_tensor({5, 24}, at::kFloat, 1, 1);
  expect_refused({"classifier.weight has shape [5, 24]", "[3, 24]", "--ignore_mismatched_sizes"});
  options_.ignore_mismatched_sizes = true;
  EXPECT_EQ(names_made_new(load()), (std::vector<std::string>{"classifier.weight"}));
}

TEST_F(ClassifierWeights, ThatLackAPartOfTheEncoderAreRefused) {
  remove_where([](const std::string& name) { return name == kQuery; });
  expect_refused({"lacks 1 of", kQuery});
}

TEST_F(ClassifierWeights, OfAnotherShapeOrTypeOrNotFiniteAreRefused) {
  const at::Tensor query = stored(kQuery).clone();
  stored(kQuery) = random_tensor({24, 25}, at::kFloat, 1, 1);
  expect_refused({kQuery, "[24, 25]", "[24, 24]"});
  stored(kQuery) = query.to(at::kDouble);
  expect_refused({kQuery, "Double"});
  stored(kQuery) = query.clone();
  stored(kQuery).view({-1}).narrow(0, 3, 1).fill_(std::numeric_limits<double>::quiet_NaN());
  expect_refused({kQuery, "NaN"});
}

TEST_F(ClassifierWeights, OfADecoderLanguageModelGetAScore) {
  model::DecoderConfig config = small_llama();
  layout_ = tensor::ParamLayout(model::Decoder::param_specs(config));
  stored_.clear();
  fill();
  stored_.push_back({"lm_head.weight", random_tensor({48, 24}, at::kFloat, 1, 1)});
  config.num_labels = 4;
  layout_ = tensor::ParamLayout(model::Decoder::param_specs(config));
  EXPECT_EQ(layout_.find("lm_head.weight"), -1);
  options_.prefix = "model.";
  const auto weights = load();
  EXPECT_EQ(names_made_new(weights), (std::vector<std::string>{"score.weight"}));
  EXPECT_EQ(weights.unused.size(), 1U);
  // The order is that of the language model, so its contributions count for the classifier too.
  const model::Decoder decoder(config, 16, at::kFloat);
  EXPECT_EQ(decoder.head_weight_id(), layout_.find("score.weight"));
  EXPECT_EQ(decoder.contributions(5, 1000, 5)[static_cast<size_t>(decoder.head_weight_id())], 5);
}

}  // namespace
}  // namespace lockstep::testing
