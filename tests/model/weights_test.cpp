#include "model/model_rig.h"
#include "model/temporary_folder.h"
#include "model/test_configs.h"

#include "lockstep/base/error.h"
#include "lockstep/model/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace lockstep::testing {
namespace {

using tensor::NamedTensor;

class Weights : public ::testing::Test {
 protected:
  explicit Weights(const model::DecoderConfig& config = small_qwen3())
      : config_(config), layout_(model::Decoder::param_specs(config)) {
    for (tensor::ParamId id = 0; id < layout_.num_params(); ++id)
      stored_.push_back({layout_.spec(id).name,
                         random_tensor(layout_.spec(id).shape, at::kBFloat16, static_cast<uint64_t>(id), 1)});
  }
  at::Tensor& stored(const std::string& name) {
    return std::find_if(stored_.begin(), stored_.end(), [&](const NamedTensor& t) { return t.name == name; })->tensor;
  }
  void remove(const std::string& name) {
    std::erase_if(stored_, [&](const NamedTensor& t) { return t.name == name; });
  }

  at::ScalarType load() {
    tensor::write_safetensors(folder_.path() / "model.safetensors", stored_);
    const tensor::WeightFiles files = tensor::WeightFiles::open(folder_.path());
    read_.clear();
    return model::load_weights(layout_, files, config_.tie_word_embeddings,
                               [&](tensor::ParamId id, const at::Tensor& x) { read_.emplace_back(id, x.clone()); });
  }
  void expect_refused(const std::vector<std::string>& message) {
    try {
      load();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      for (const std::string& part : message)
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " not in: " << error.what();
    }
  }

  TemporaryFolder folder_;
  model::DecoderConfig config_;
  tensor::ParamLayout layout_;
  std::vector<NamedTensor> stored_;
  std::vector<std::pair<tensor::ParamId, at::Tensor>> read_;
};

class TiedWeights : public Weights {
 protected:
  TiedWeights() : Weights(small_llama()) {}
};

constexpr const char* kNorm = "model.layers.1.self_attn.q_norm.weight";

TEST_F(Weights, AreReadInLayoutOrderAsStored) {
  EXPECT_EQ(load(), at::kBFloat16);
  ASSERT_EQ(read_.size(), static_cast<size_t>(layout_.num_params()));
  for (size_t i = 0; i < read_.size(); ++i) {
    EXPECT_EQ(read_[i].first, static_cast<int>(i));
    EXPECT_TRUE(same_bits(read_[i].second, stored(layout_.spec(read_[i].first).name)));
  }
}

TEST_F(Weights, OfMixedTypesAreReportedAsFloat32) {
  stored(kNorm) = stored(kNorm).to(at::kHalf);
  EXPECT_EQ(load(), at::kFloat);
  for (NamedTensor& t : stored_) t.tensor = t.tensor.to(at::kHalf);
  EXPECT_EQ(load(), at::kHalf);
}

TEST_F(Weights, ThatAreMissingAreNamedAndCounted) {
  remove(kNorm);
  expect_refused({"lacks 1 of", kNorm});
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
    remove("model.layers.0.self_attn." + std::string(name) + ".weight");
  expect_refused({"lacks 5 of", "q_proj", "2 more"});
  EXPECT_TRUE(read_.empty());
}

TEST_F(Weights, ThatTheModelDoesNotHaveAreNamedWithTheirFile) {
  stored_.push_back({"model.layers.2.mlp.up_proj.weight", at::Tensor(stored(kNorm))});
  expect_refused({"model.layers.2.mlp.up_proj.weight", "model.safetensors", "config.json"});
}

TEST_F(Weights, RotaryBuffersAreIgnored) {
  stored_.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", at::Tensor(stored(kNorm))});
  EXPECT_EQ(load(), at::kBFloat16);
  EXPECT_EQ(read_.size(), static_cast<size_t>(layout_.num_params()));
}

TEST_F(Weights, OfAnotherShapeAreRefused) {
  stored("model.norm.weight") = random_tensor({23}, at::kBFloat16, 1, 1);
  expect_refused({"model.norm.weight", "[23]", "[24]"});
  EXPECT_TRUE(read_.empty());
}

TEST_F(Weights, OfAnotherTypeAreRefused) {
  stored("model.norm.weight") = random_tensor({24}, at::kDouble, 1, 1);
  expect_refused({"model.norm.weight", "Double", "bfloat16"});
}

TEST_F(Weights, ThatAreNotFiniteAreRefusedInEveryTypeAndPlace) {
  const std::string name = "model.layers.0.mlp.down_proj.weight";  // 960 elements: the end of the search
  const at::Tensor large = stored("lm_head.weight");               // 1152 elements: its blocks
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf})
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
      stored(name) = random_tensor({24, 40}, dtype, 1, 1);
      stored(name).view({-1}).narrow(0, 959, 1).fill_(bad);
      expect_refused({name, "NaN or infinite"});
      stored(name) = random_tensor({24, 40}, dtype, 1, 1);
      stored("lm_head.weight") = large.to(dtype).clone();
      stored("lm_head.weight").view({-1}).narrow(0, 3, 1).fill_(bad);
      expect_refused({"lm_head.weight", "NaN or infinite"});
      stored("lm_head.weight") = large;
    }
}

TEST_F(Weights, OfTheLargestFiniteSizeAreRead) {
  stored(kNorm) = at::Tensor(stored(kNorm)).to(at::kHalf).fill_(65504.0);
  EXPECT_NO_THROW(load());
  stored(kNorm) = stored(kNorm).to(at::kFloat).fill_(-3.4028234663852886e38);
  EXPECT_NO_THROW(load());
}

TEST_F(TiedWeights, AStoredHeadThatEqualsTheEmbeddingIsIgnored) {
  stored_.push_back({"lm_head.weight", stored("model.embed_tokens.weight").clone()});
  EXPECT_NO_THROW(load());
  EXPECT_EQ(read_.size(), static_cast<size_t>(layout_.num_params()));
}

TEST_F(TiedWeights, AStoredHeadThatDiffersIsRefused) {
  stored_.push_back({"lm_head.weight", stored("model.embed_tokens.weight").clone()});
  stored("lm_head.weight").view({-1}).narrow(0, 9, 1).add_(1.0);
  expect_refused({"lm_head.weight", "tie_word_embeddings"});
}

}  // namespace
}  // namespace lockstep::testing
