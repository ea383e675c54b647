#include "model/temporary_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/model/config.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::testing {
namespace {

using model::DecoderConfig;
using model::read_decoder_config;
using nlohmann::json;

DecoderConfig read(const json& config) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "config.json", config.dump());
  return read_decoder_config(folder.path());
}

std::filesystem::path tiny(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_TEST_DATA) / "models/tiny" / name;
}

json tiny_json(const std::string& name) { return json::parse(read_file(tiny(name) / "config.json")); }

TEST(DecoderConfig, BothSpellingsMeanTheSameModel) {
  for (const char* name : {"llama", "llama-rope3", "llama-sharded", "qwen2", "qwen3", "mistral", "gemma2", "phi3", "gpt2", "mixtral", "qwen3-moe"}) {
    SCOPED_TRACE(name);
    const DecoderConfig a = read_decoder_config(tiny(name)), b = read_decoder_config(tiny(name), "config.v5.json");
    EXPECT_EQ(a.model_type, b.model_type);
    EXPECT_EQ(a.architecture, b.architecture);
    EXPECT_EQ(a.head_dim, b.head_dim);
    EXPECT_EQ(a.rope_theta, b.rope_theta);
    EXPECT_EQ(a.rope.type, b.rope.type);
    EXPECT_EQ(a.rope.factor, b.rope.factor);
    EXPECT_EQ(a.rope.original_max_position_embeddings, b.rope.original_max_position_embeddings);
    EXPECT_EQ(a.stored_dtype, b.stored_dtype);
    EXPECT_EQ(model::rope_inverse_frequencies(a), model::rope_inverse_frequencies(b));
    EXPECT_EQ(a.rotary_dim, b.rotary_dim);
    EXPECT_EQ(a.local_rope_theta, b.local_rope_theta);
  }
}

TEST(DecoderConfig, ReadsEveryKey) {
  const DecoderConfig c = read_decoder_config(tiny("llama-rope3"));
  EXPECT_EQ(c.hidden_size, 64);
  EXPECT_EQ(c.intermediate_size, 96);
  EXPECT_EQ(c.num_layers, 2);
  EXPECT_EQ(c.vocab_size, 512);
  EXPECT_EQ(c.num_heads, 4);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 16);
  EXPECT_EQ(c.max_position_embeddings, 128);
  EXPECT_EQ(c.rms_norm_eps, 1e-5);
  EXPECT_EQ(c.rope_theta, 500000);
  EXPECT_EQ(c.rope.type, "llama3");
  EXPECT_EQ(c.rope.factor, 8);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.stored_dtype, "bfloat16");
  EXPECT_TRUE(read_decoder_config(tiny("qwen2")).qkv_bias);
  EXPECT_FALSE(read_decoder_config(tiny("qwen2")).output_bias);
  EXPECT_TRUE(read_decoder_config(tiny("qwen3")).qk_norm);
  EXPECT_EQ(read_decoder_config(tiny("qwen3")).head_dim, 32);
}

TEST(DecoderConfig, MissingKeysHaveTheDefaultsOfTheModelType) {
  const DecoderConfig llama = read({{"model_type", "llama"}});
  EXPECT_EQ(llama.architecture, "LlamaForCausalLM");
  EXPECT_EQ(llama.vocab_size, 32000);
  EXPECT_EQ(llama.hidden_size, 4096);
  EXPECT_EQ(llama.intermediate_size, 11008);
  EXPECT_EQ(llama.num_layers, 32);
  EXPECT_EQ(llama.num_heads, 32);
  EXPECT_EQ(llama.num_kv_heads, 32);
  EXPECT_EQ(llama.head_dim, 128);
  EXPECT_EQ(llama.max_position_embeddings, 2048);
  EXPECT_EQ(llama.rms_norm_eps, 1e-6);
  EXPECT_EQ(llama.rope_theta, 10000);
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_EQ(read({{"model_type", "llama"}, {"num_attention_heads", 8}}).num_kv_heads, 8);

  const DecoderConfig qwen3 = read({{"model_type", "qwen3"}, {"hidden_size", 1024}, {"num_attention_heads", 16},
                                    {"num_key_value_heads", nullptr}});
  EXPECT_EQ(qwen3.vocab_size, 151936);
  EXPECT_EQ(qwen3.intermediate_size, 22016);
  EXPECT_EQ(qwen3.max_position_embeddings, 32768);
  EXPECT_EQ(qwen3.head_dim, 128);
  EXPECT_EQ(qwen3.num_kv_heads, 16);
  EXPECT_FALSE(qwen3.qkv_bias);
}

TEST(DecoderConfig, BiasesAreThoseOfTheFamily) {
  const DecoderConfig llama = read({{"model_type", "llama"}, {"attention_bias", true}, {"mlp_bias", true}});
  EXPECT_TRUE(llama.qkv_bias && llama.output_bias && llama.mlp_bias);
  const DecoderConfig qwen3 = read({{"model_type", "qwen3"}, {"attention_bias", true}});
  EXPECT_TRUE(qwen3.qkv_bias && qwen3.output_bias);
  EXPECT_FALSE(qwen3.mlp_bias);
}

TEST(DecoderConfig, ThePaddingTokenIsThatOfTorchsEmbedding) {
  EXPECT_EQ(read({{"model_type", "llama"}}).pad_token_id, -1);
  EXPECT_EQ(read({{"model_type", "llama"}, {"pad_token_id", nullptr}}).pad_token_id, -1);
  EXPECT_EQ(read({{"model_type", "llama"}, {"pad_token_id", 2}}).pad_token_id, 2);
  EXPECT_EQ(read({{"model_type", "llama"}, {"pad_token_id", -1}}).pad_token_id, 31999);
}

TEST(DecoderConfig, ASlidingWindowThatIsNotUsedIsIgnored) {
  json config = tiny_json("qwen2");
  config["sliding_window"] = 4096;
  EXPECT_EQ(read(config).window(1), 0);
  config.erase("layer_types");
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 2;  // of 2 layers: none slides
  EXPECT_EQ(read(config).window(1), 0);
  config["max_window_layers"] = 1;
  EXPECT_EQ(read(config).window(0), 0);
  EXPECT_EQ(read(config).window(1), 4096);
  config["sliding_window"] = nullptr;
  config["max_window_layers"] = 0;
  EXPECT_EQ(read(config).window(1), 0);
}

TEST(DecoderConfig, EveryFamilySaysWhatItAdds) {
  EXPECT_EQ(read({{"model_type", "mistral"}}).window(3), 4096);
  EXPECT_EQ(read({{"model_type", "mistral"}, {"sliding_window", nullptr}}).window(3), 0);
  const DecoderConfig gemma2 = read({{"model_type", "gemma2"}});
  EXPECT_EQ(gemma2.embedding_scale, 48);
  EXPECT_EQ(gemma2.attention_scale, 1.0 / 16);
  EXPECT_EQ(gemma2.attention_softcap, 50);
  EXPECT_EQ(gemma2.logit_softcap, 30);
  EXPECT_TRUE(gemma2.tie_word_embeddings && gemma2.post_norms);
  EXPECT_EQ(gemma2.window(0), 4096);
  EXPECT_EQ(gemma2.window(1), 0);
  EXPECT_EQ(read({{"model_type", "gemma2"}, {"final_logit_softcapping", nullptr}}).logit_softcap, 0);
  const DecoderConfig gemma3 = read({{"model_type", "gemma3_text"}});
  EXPECT_EQ(gemma3.window(4), 4096);
  EXPECT_EQ(gemma3.window(5), 0);
  EXPECT_EQ(gemma3.rope_theta, 1e6);
  EXPECT_EQ(gemma3.local_rope_theta, 1e4);
  EXPECT_EQ(gemma3.attention_softcap, 0);
  const DecoderConfig gpt2 = read({{"model_type", "gpt2"}});
  EXPECT_EQ(gpt2.intermediate_size, 3072);
  EXPECT_EQ(gpt2.residual_dropout, 0.1);
  EXPECT_EQ(read_decoder_config(tiny("phi3")).rotary_dim, 12);
}

struct BadConfig {
  std::string model;
  json change;                       ///< merged into the tiny model's config.json; null removes
  std::vector<std::string> message;  ///< all of them must be in the error
};

TEST(DecoderConfig, WhatIsWrongOrNotThereIsRefusedByNameAndValue) {
  const std::vector<BadConfig> cases = {
      {"llama", {{"architectures", {"Mistral3ForCausalLM"}}}, {"Mistral3", "Nearest: MistralForCausalLM", "Qwen3ForCausalLM"}},
      {"llama", {{"architectures", {"LlamaForSequenceClassification"}}}, {"Nearest: LlamaForCausalLM"}},
      {"llama", {{"architectures", {"qwen2forcausalLM"}}}, {"Nearest: Qwen2ForCausalLM"}},
      {"llama", {{"architectures", nullptr}, {"model_type", "qwen4"}}, {"model_type", "qwen4", "Nearest: qwen"}},
      {"llama", {{"architectures", nullptr}, {"model_type", nullptr}}, {"does not say which model"}},
      {"llama", {{"architectures", "LlamaForCausalLM"}}, {"architectures", "list of strings"}},
      {"llama", {{"model_type", "qwen3"}}, {"model_type", "qwen3", "LlamaForCausalLM"}},
      {"llama", {{"hidden_act", "gelu"}}, {"hidden_act", "gelu", "silu"}},
      {"llama", {{"pretraining_tp", 2}}, {"pretraining_tp", "2"}},
      {"llama", {{"hidden_size", "64"}}, {"hidden_size", "\"64\"", "whole number"}},
      {"llama", {{"hidden_size", 64.5}}, {"hidden_size", "64.5"}},
      {"llama", {{"hidden_size", 0}}, {"hidden_size", "0"}},
      {"llama", {{"num_hidden_layers", -2}}, {"num_hidden_layers", "-2"}},
      {"llama", {{"vocab_size", 4294967296}}, {"vocab_size", "4294967296"}},
      {"llama", {{"num_key_value_heads", 3}}, {"num_key_value_heads", "3", "num_attention_heads = 4"}},
      {"llama", {{"head_dim", nullptr}, {"num_attention_heads", 6}}, {"hidden_size", "64", "num_attention_heads = 6"}},
      {"llama", {{"head_dim", 15}}, {"head_dim", "15", "even"}},
      {"llama", {{"pad_token_id", 512}}, {"pad_token_id", "512"}},
      {"llama", {{"rms_norm_eps", 0}}, {"rms_norm_eps", "0"}},
      {"llama", {{"tie_word_embeddings", 1}}, {"tie_word_embeddings", "1", "true or false"}},
      {"llama", {{"attention_dropout", 1.0}}, {"attention_dropout", "1.0"}},
      {"llama", {{"torch_dtype", "float64"}}, {"torch_dtype", "float64", "bfloat16"}},
      {"llama", {{"rope_theta", "big"}}, {"rope_theta", "big", "number"}},
      {"llama", {{"rope_scaling", {{"type", "ntk"}, {"factor", 4}}}}, {"rope_scaling.type", "ntk", "llama3", "yarn"}},
      {"llama", {{"rope_scaling", {{"type", "linear"}}}}, {"rope_scaling.factor", "linear"}},
      {"phi3",
       {{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1, 1}}, {"long_factor", {1, 1, 1, 1, 1, 1}}}}},
       {"rope_scaling.short_factor", "2 numbers", "6"}},
      {"gemma2", {{"use_bidirectional_attention", true}}, {"use_bidirectional_attention"}},
      {"gemma2", {{"layer_types", {"full_attention"}}}, {"layer_types", "1 entries", "num_hidden_layers = 2"}},
      {"gemma2", {{"hidden_activation", "relu"}}, {"hidden_activation", "gelu_pytorch_tanh"}},
      {"gpt2", {{"scale_attn_by_inverse_layer_idx", true}}, {"scale_attn_by_inverse_layer_idx"}},
      {"gpt2", {{"n_head", 5}}, {"n_embd", "n_head = 5"}},
      {"llama", {{"rope_scaling", 8}}, {"rope_scaling", "8", "object"}},
      {"llama", {{"partial_rotary_factor", 0.5}}, {"partial_rotary_factor", "0.5"}},
      {"llama", {{"quantization_config", {{"bits", 4}}}}, {"quantization_config", "bits"}},
      {"llama-rope3", {{"rope_scaling", {{"factor", nullptr}}}}, {"rope_scaling.factor", "llama3"}},
      {"llama-rope3", {{"rope_scaling", {{"factor", 0.5}}}}, {"rope_scaling.factor", "0.5"}},
      {"llama-rope3", {{"rope_scaling", {{"low_freq_factor", 4.0}}}}, {"high_freq_factor", "4"}},
      {"qwen2", {{"layer_types", {"full_attention", "sliding_attention"}}}, {"layer_types", "use_sliding_window"}},
      {"qwen2", {{"layer_types", {"full_attention", "linear_attention"}}}, {"layer_types", "linear_attention"}},
  };
  for (const BadConfig& bad : cases) {
    SCOPED_TRACE(bad.change.dump());
    json config = tiny_json(bad.model);
    config.merge_patch(bad.change);
    try {
      read(config);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Data);
      for (const std::string& part : bad.message)
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << part << " not in: " << error.what();
      EXPECT_NE(std::string(error.what()).find("config.json"), std::string::npos) << error.what();
    }
  }
}

TEST(DecoderConfig, FilesThatAreNotAJsonObjectAreRefused) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_decoder_config(folder.path()), Error);
  for (const char* text : {"", "{\"model_type\": \"llama\"", "[1, 2]"}) {
    write_file_atomically(folder.path() / "config.json", text);
    EXPECT_THROW(read_decoder_config(folder.path()), Error) << text;
  }
}

TEST(RopeInverseFrequencies, FallFromOneByTheBase) {
  const std::vector<double> plain = model::rope_inverse_frequencies(read_decoder_config(tiny("llama")));
  ASSERT_EQ(plain.size(), 8U);
  EXPECT_EQ(plain[0], 1.0);
  EXPECT_NEAR(plain[4], 0.01, 1e-15);  // 10000^(-8 / 16)
}

TEST(RopeInverseFrequencies, Llama3KeepsShortWavesBlendsAndDividesLongOnes) {
  DecoderConfig config = read_decoder_config(tiny("llama-rope3"));
  const std::vector<double> scaled = model::rope_inverse_frequencies(config);
  config.rope = {};
  const std::vector<double> plain = model::rope_inverse_frequencies(config);
  // Trained length 16: wavelengths below 4 are kept, above 16 divided by 8; 2 pi, that of the first, is between.
  const double smooth = (16 / (2 * std::numbers::pi) - 1) / 3;
  EXPECT_NEAR(scaled[0], (1 - smooth) / 8 + smooth, 1e-15);
  for (size_t i = 1; i < plain.size(); ++i) EXPECT_EQ(scaled[i], plain[i] / 8);
}

DecoderConfig stretched(const json& scaling, int64_t max_positions) {
  return read({{"model_type", "llama"}, {"head_dim", 8}, {"max_position_embeddings", max_positions}, {"rope_scaling", scaling}});
}

TEST(RopeFrequencies, LinearDividesAllAndDynamicRaisesTheBaseBeyondTheTrainedLength) {
  const std::vector<double> plain = model::rope_inverse_frequencies(read({{"model_type", "llama"}, {"head_dim", 8}}));
  const DecoderConfig linear = stretched({{"type", "linear"}, {"factor", 4.0}}, 64);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(model::rope_inverse_frequencies(linear)[i], plain[i] / 4);
  const DecoderConfig dynamic = stretched({{"rope_type", "dynamic"}, {"factor", 2.0}}, 64);
  EXPECT_EQ(model::rope_stable_length(dynamic), 64);
  EXPECT_EQ(model::rope_frequencies(dynamic, false, 64).inverse, plain);
  // 10000 (2 * 96 / 64 - 1)^(8 / 6), to the power of -2 / 8.
  EXPECT_NEAR(model::rope_frequencies(dynamic, false, 96).inverse[1], std::pow(1e4 * std::pow(2.0, 8.0 / 6), -0.25), 1e-15);
}

TEST(RopeFrequencies, YarnKeepsFastOnesAndDividesSlowOnes) {
  // With 8 elements and base 10000 the index of n turns in 4,096 positions is 4 log(4096 / (2 pi n)) / log(10000).
  const DecoderConfig yarn = stretched({{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}}, 16384);
  const std::vector<double> plain = model::rope_inverse_frequencies(read({{"model_type", "llama"}, {"head_dim", 8}}));
  const model::RopeFrequencies got = model::rope_frequencies(yarn);
  EXPECT_NEAR(got.attention_scaling, 0.1 * std::log(4.0) + 1, 1e-15);
  const double low = 1, high = 3;  // floor of 1.31, ceiling of 2.81
  for (size_t i = 0; i < 4; ++i) {
    const double slow = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    EXPECT_NEAR(got.inverse[i], plain[i] / 4 * slow + plain[i] * (1 - slow), 1e-17) << i;
  }
  EXPECT_EQ(model::rope_frequencies(stretched({{"type", "yarn"}, {"factor", 4.0}, {"attention_factor", 1.5}}, 64)).attention_scaling,
            1.5);
}

TEST(RopeFrequencies, LongropeChangesItsFactorsWithTheLength) {
  const DecoderConfig config = stretched({{"type", "longrope"},
                                          {"short_factor", {1, 1, 2, 2}},
                                          {"long_factor", {1, 4, 8, 16}},
                                          {"original_max_position_embeddings", 16}}, 64);
  const std::vector<double> plain = model::rope_inverse_frequencies(read({{"model_type", "llama"}, {"head_dim", 8}}));
  EXPECT_EQ(model::rope_stable_length(config), 16);
  EXPECT_EQ(model::rope_frequencies(config, false, 16).inverse[3], plain[3] / 2);
  EXPECT_EQ(model::rope_frequencies(config, false, 17).inverse[3], plain[3] / 16);
  EXPECT_NEAR(model::rope_frequencies(config).attention_scaling, std::sqrt(1.5), 1e-15);  // 1 + log 4 / log 16
}

}  // namespace
}  // namespace lockstep::testing
