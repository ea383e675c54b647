#include "model/model_rig.h"
#include "model/test_configs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::testing {
namespace {

using model::Decoder;
using tensor::ParamSpec;

std::vector<std::string> names_of_layer(const model::DecoderConfig& config) {
  std::vector<std::string> names;
  for (const ParamSpec& spec : Decoder::param_specs(config))
    if (spec.name.starts_with("model.layers.1.")) names.push_back(spec.name.substr(15));
  return names;
}

TEST(ParamSpecs, FollowTheModuleTreeOfTransformers) {
  EXPECT_EQ(names_of_layer(small_llama()),
            (std::vector<std::string>{"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
                                      "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
                                      "mlp.down_proj.weight", "input_layernorm.weight",
                                      "post_attention_layernorm.weight"}));
  EXPECT_EQ(names_of_layer(small_qwen2())[1], "self_attn.q_proj.bias");
  EXPECT_EQ(names_of_layer(small_qwen2()).size(), 9U + 3U);
  EXPECT_EQ(names_of_layer(small_llama_with_biases()).size(), 9U + 7U);
  EXPECT_EQ(names_of_layer(small_qwen3())[4], "self_attn.q_norm.weight");
  EXPECT_EQ(names_of_layer(small_qwen3()).size(), 9U + 2U);
}

TEST(ParamSpecs, BlocksAreEmbeddingLayersHead) {
  const tensor::ParamLayout layout(Decoder::param_specs(small_qwen3()));
  EXPECT_EQ(layout.num_blocks(), 4);
  EXPECT_EQ(layout.spec(layout.find("model.embed_tokens.weight")).block, 0);
  EXPECT_EQ(layout.spec(layout.find("model.layers.1.mlp.up_proj.weight")).block, 2);
  EXPECT_EQ(layout.spec(layout.find("model.norm.weight")).block, 3);
  EXPECT_EQ(layout.spec(layout.find("lm_head.weight")).block, 3);
}

TEST(ParamSpecs, ATiedHeadIsTheEmbedding) {
  const tensor::ParamLayout layout(Decoder::param_specs(small_llama()));
  EXPECT_EQ(layout.find("lm_head.weight"), -1);
  const Decoder decoder(small_llama(), 16, at::kFloat);
  EXPECT_EQ(decoder.head_weight_id(), layout.find("model.embed_tokens.weight"));
  EXPECT_EQ(decoder.final_norm().weight, layout.find("model.norm.weight"));
}

TEST(ParamSpecs, BiasesAndNormsDoNotDecay) {
  for (const auto& config : {small_llama_with_biases(), small_qwen2(), small_qwen3()})
    for (const ParamSpec& spec : Decoder::param_specs(config)) {
      const bool vector = spec.shape.size() == 1;  // in these families exactly the biases and norms
      EXPECT_EQ(spec.decay, !vector) << spec.name;
    }
}

TEST(Contributions, CountEveryUseOfAParameter) {
  const tensor::ParamLayout untied(Decoder::param_specs(small_qwen3()));
  const auto of_untied = Decoder(small_qwen3(), 16, at::kFloat).contributions(5, 1000, 7);
  EXPECT_EQ(of_untied[static_cast<size_t>(untied.find("model.embed_tokens.weight"))], 1000);
  EXPECT_EQ(of_untied[static_cast<size_t>(untied.find("lm_head.weight"))], 7);
  EXPECT_EQ(of_untied[static_cast<size_t>(untied.find("model.norm.weight"))], 5);
  EXPECT_EQ(of_untied[static_cast<size_t>(untied.find("model.layers.0.self_attn.q_norm.weight"))], 5);

  const tensor::ParamLayout tied(Decoder::param_specs(small_llama()));
  const auto of_tied = Decoder(small_llama(), 16, at::kFloat).contributions(5, 1000, 7);
  EXPECT_EQ(of_tied[static_cast<size_t>(tied.find("model.embed_tokens.weight"))], 1007);
}

/// Counts the calls of the sink: one is one contribution, or one per row.
class CountingSink : public tensor::GradSink {
 public:
  explicit CountingSink(int num_params) : counts(static_cast<size_t>(num_params)) {}
  void add(tensor::ParamId id, const at::Tensor&) override { ++counts[static_cast<size_t>(id)]; }
  void add_rows(tensor::ParamId id, const at::Tensor& rows, const at::Tensor&) override {
    counts[static_cast<size_t>(id)] += rows.numel();
  }
  std::vector<int64_t> counts;
};

TEST(Contributions, AreTheOnesTheBackwardPassMakes) {
  for (const auto& config : {small_llama(), small_llama_with_biases(), small_qwen2(), small_qwen3()}) {
    ModelRig rig(config, at::kFloat);
    const std::vector<model::GrainInput> grains = {pack({random_document(20, config.vocab_size, 0, 0)}),
                                                   pack({random_document(30, config.vocab_size, 1, 3)})};
    CountingSink sink(rig.layout().num_params());
    for (const model::GrainInput& grain : grains) rig.backward(grain, 46, model::Keep::All, sink);
    EXPECT_EQ(sink.counts, rig.decoder().contributions(2, 50, 2)) << config.model_type;
  }
}

TEST(Embedding, ThePaddingTokenGetsNoGradientAsAnInput) {
  model::DecoderConfig config = small_qwen3();  // untied: the embedding's gradient is that of the inputs alone
  const std::vector<Document> documents = {document_with_all_targets({3, 7, 5, 7, 9})};
  const auto norm_of_row = [&](int64_t pad_token_id, int64_t row) {
    config.pad_token_id = pad_token_id;
    ModelRig rig(config, at::kFloat);
    rig.randomise(3, 0.3);
    SumSink sink(rig.layout(), at::kFloat);
    rig.backward(pack(documents), 4, model::Keep::All, sink);
    return sink.grad(rig.layout().find("model.embed_tokens.weight")).narrow(0, row, 1).abs().sum().item<double>();
  };
  EXPECT_GT(norm_of_row(-1, 7), 0);
  EXPECT_EQ(norm_of_row(7, 7), 0);
  EXPECT_EQ(norm_of_row(7, 5), norm_of_row(-1, 5));
}

}  // namespace
}  // namespace lockstep::testing
