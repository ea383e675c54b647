#include "model/temporary_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/model/config.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

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
  for (const char* name : {"llama", "llama-rope3", "llama-sharded", "qwen2", "qwen3"}) {
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
  EXPECT_NO_THROW(read(config));
  config.erase("layer_types");
  config["use_sliding_window"] = true;
  config["max_window_layers"] = 2;  // of 2 layers: none slides
  EXPECT_NO_THROW(read(config));
  config["sliding_window"] = nullptr;
  config["max_window_layers"] = 0;
  EXPECT_NO_THROW(read(config));
}

struct BadConfig {
  std::string model;
  json change;                       ///< merged into the tiny model's config.json; null removes
  std::vector<std::string> message;  ///< all of them must be in the error
};

TEST(DecoderConfig, WhatIsWrongOrNotThereIsRefusedByNameAndValue) {
  const std::vector<BadConfig> cases = {
      {"llama", {{"architectures", {"MistralForCausalLM"}}}, {"MistralForCausalLM", "Nearest", "Qwen3ForCausalLM"}},
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
      {"llama", {{"rope_scaling", {{"type", "yarn"}, {"factor", 4}}}}, {"rope_scaling.type", "yarn", "llama3"}},
      {"llama", {{"rope_scaling", 8}}, {"rope_scaling", "8", "object"}},
      {"llama", {{"partial_rotary_factor", 0.5}}, {"partial_rotary_factor", "0.5"}},
      {"llama", {{"quantization_config", {{"bits", 4}}}}, {"quantization_config", "bits"}},
      {"llama-rope3", {{"rope_scaling", {{"factor", nullptr}}}}, {"rope_scaling.factor", "llama3"}},
      {"llama-rope3", {{"rope_scaling", {{"factor", 0.5}}}}, {"rope_scaling.factor", "0.5"}},
      {"llama-rope3", {{"rope_scaling", {{"low_freq_factor", 4.0}}}}, {"high_freq_factor", "4"}},
      {"qwen2", {{"layer_types", {"full_attention", "sliding_attention"}}}, {"layer_types", "sliding_attention"}},
      {"qwen2",
       {{"layer_types", nullptr}, {"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", 1}},
       {"use_sliding_window", "sliding windows are not there"}},
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

}  // namespace
}  // namespace lockstep::testing
