#include "model/temporary_folder.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/model/config.h"
#include "lockstep/model/encoder_config.h"
#include "lockstep/model/label_fields.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace lockstep::testing {
namespace {

using model::EncoderConfig;
using model::read_encoder_config;
using nlohmann::json;

std::filesystem::path tiny_encoder(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_TEST_DATA) / "models/tiny" / name;
}

json encoder_json(const std::string& name) { return json::parse(read_file(tiny_encoder(name) / "config.json")); }

EncoderConfig read_encoder(const json& config) {
  const TemporaryFolder folder;
  write_file_atomically(folder.path() / "config.json", config.dump());
  return read_encoder_config(folder.path());
}

void expect_encoder_refused(const json& config, const std::vector<std::string>& words) {
  try {
    read_encoder(config);
    ADD_FAILURE() << "accepted: " << config.dump();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Data);
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " not in: " << error.what();
  }
}

TEST(EncoderConfig, BothSpellingsMeanTheSameModel) {
  for (const char* name : {"bert", "roberta", "distilbert"}) {
    SCOPED_TRACE(name);
    const EncoderConfig a = read_encoder_config(tiny_encoder(name));
    const EncoderConfig b = read_encoder_config(tiny_encoder(name), "config.v5.json");
    EXPECT_EQ(a.model_type, name);
    EXPECT_EQ(a.model_type, b.model_type);
    EXPECT_EQ(a.prefix, std::string(name) + ".");
    EXPECT_EQ(a.stored_dtype, "float32");
    EXPECT_EQ(b.stored_dtype, "float32");
    EXPECT_EQ(a.hidden_size, 64);
    EXPECT_EQ(a.intermediate_size, 96);
    EXPECT_EQ(a.num_layers, 2);
    EXPECT_EQ(a.num_heads, 4);
    EXPECT_EQ(a.vocab_size, 512);
    EXPECT_EQ(a.num_labels, 3);
    EXPECT_EQ(a.activation, "gelu");
    EXPECT_EQ(a.max_document_tokens(), 64);
    EXPECT_TRUE(model::is_encoder_config(tiny_encoder(name)));
  }
  EXPECT_FALSE(model::is_encoder_config(tiny_encoder("llama")));
}

TEST(EncoderConfig, FamiliesDifferInTypesPositionsAndHeadDropout) {
  const EncoderConfig bert = read_encoder_config(tiny_encoder("bert"));
  EXPECT_EQ(bert.architecture, "BertForSequenceClassification");
  EXPECT_EQ(bert.type_vocab_size, 2);
  EXPECT_EQ(bert.pad_token_id, 0);
  EXPECT_EQ(bert.classifier_dropout, 0.1);
  const EncoderConfig roberta = read_encoder_config(tiny_encoder("roberta"));
  EXPECT_EQ(roberta.first_position, 2);
  EXPECT_EQ(roberta.max_position_embeddings, 66);
  const EncoderConfig distilbert = read_encoder_config(tiny_encoder("distilbert"));
  EXPECT_EQ(distilbert.type_vocab_size, 0);
  EXPECT_EQ(distilbert.classifier_dropout, 0.2);
  EXPECT_EQ(distilbert.layer_norm_eps, 1e-12);
}

TEST(EncoderConfig, TheHeadsDropoutIsTheClassifiersOrTheHiddenOne) {
  json config = encoder_json("bert");
  config["hidden_dropout_prob"] = 0.3;
  EXPECT_EQ(read_encoder(config).classifier_dropout, 0.3);
  config["classifier_dropout"] = 0.25;
  EXPECT_EQ(read_encoder(config).classifier_dropout, 0.25);
  config["classifier_dropout"] = 0;
  EXPECT_EQ(read_encoder(config).classifier_dropout, 0);
  config = encoder_json("distilbert");
  config["dropout"] = 0.3;
  config["seq_classif_dropout"] = 0.05;
  EXPECT_EQ(read_encoder(config).hidden_dropout, 0.3);
  EXPECT_EQ(read_encoder(config).classifier_dropout, 0.05);
}

TEST(EncoderConfig, AbsentKeysHaveTheDefaultsOfTransformers) {
  const EncoderConfig bert = read_encoder({{"model_type", "bert"}});
  EXPECT_EQ(bert.hidden_size, 768);
  EXPECT_EQ(bert.num_layers, 12);
  EXPECT_EQ(bert.vocab_size, 30522);
  EXPECT_EQ(bert.num_labels, 2);
  EXPECT_EQ(bert.initializer_range, 0.02);
  const EncoderConfig roberta = read_encoder({{"architectures", json::array({"RobertaModel"})}});
  EXPECT_EQ(roberta.vocab_size, 50265);
  EXPECT_EQ(roberta.max_document_tokens(), 510);
  const EncoderConfig distilbert = read_encoder({{"model_type", "distilbert"}, {"hidden_size", 96}});
  EXPECT_EQ(distilbert.num_layers, 6);
  EXPECT_EQ(distilbert.hidden_size, 96) << "the general name is taken too";
}

TEST(EncoderConfig, NamesOfActivationsAreThoseOfTransformers) {
  json config = encoder_json("bert");
  for (const auto& [name, wanted] : {std::pair{"gelu", "gelu"}, {"gelu_python", "gelu"}, {"gelu_new", "gelu_tanh"},
                                     {"gelu_pytorch_tanh", "gelu_tanh"}, {"gelu_fast", "gelu_tanh"}, {"relu", "relu"}}) {
    config["hidden_act"] = name;
    EXPECT_EQ(read_encoder(config).activation, wanted);
  }
}

TEST(EncoderConfig, RefusesByNameWhatWouldComputeSomethingElse) {
  const auto with = [](const std::string& family, const std::string& key, const json& value) {
    json config = encoder_json(family);
    config[key] = value;
    return config;
  };
  expect_encoder_refused(with("bert", "position_embedding_type", "relative_key"), {"relative_key", "absolute positions"});
  expect_encoder_refused(with("bert", "is_decoder", true), {"is_decoder = true", "Set it to false"});
  expect_encoder_refused(with("bert", "add_cross_attention", true), {"cross attention"});
  expect_encoder_refused(with("bert", "hidden_act", "silu"), {"hidden_act = \"silu\"", "There are: gelu, gelu_new"});
  expect_encoder_refused(with("distilbert", "activation", "mish"), {"activation = \"mish\""});
  expect_encoder_refused(with("bert", "quantization_config", {{"bits", 4}}), {"quantised"});
  expect_encoder_refused(with("bert", "num_attention_heads", 5), {"hidden_size = 64", "number of heads, 5"});
  expect_encoder_refused(with("bert", "hidden_dropout_prob", 1), {"hidden_dropout_prob = 1", "below 1"});
  expect_encoder_refused(with("bert", "classifier_dropout", -0.5), {"classifier_dropout"});
  expect_encoder_refused(with("roberta", "pad_token_id", nullptr), {"pad_token_id = null", "roberta-base: 1"});
  expect_encoder_refused(with("roberta", "max_position_embeddings", 2), {"max_position_embeddings = 2"});
  expect_encoder_refused(with("bert", "model_type", "deberta"), {"deberta", "Nearest: roberta", "There are: bert, roberta, distilbert"});
  expect_encoder_refused(with("bert", "id2label", {{"0", "a"}, {"2", "b"}}), {"indices are not 0 to 1"});
  expect_encoder_refused(with("bert", "layer_norm_eps", 0), {"layer_norm_eps"});
  expect_encoder_refused({{"architectures", json::array({"GPT2Model"})}}, {"GPT2Model", "There are: bert, roberta"});
  expect_encoder_refused(json::object(), {"does not say which model"});
}

TEST(LabelFields, AreReadFromNamesOrFromTheirNumber) {
  const TemporaryFolder folder;
  const auto labels_of = [&](const json& config) {
    write_file_atomically(folder.path() / "config.json", config.dump());
    return model::read_label_fields(model::JsonFields::read(folder.path() / "config.json"));
  };
  EXPECT_EQ(labels_of({{"id2label", {{"1", "no"}, {"0", "yes"}}}}).names, (std::vector<std::string>{"yes", "no"}));
  EXPECT_EQ(labels_of({{"num_labels", 7}}).num_labels, 7);
  EXPECT_EQ(labels_of(json::object()).num_labels, 2);
  EXPECT_EQ(labels_of({{"problem_type", "regression"}}).problem_type, "regression");
  EXPECT_THROW(labels_of({{"problem_type", "ranking"}}), Error);
  const json names = {{"0", "no"}, {"1", "yes"}};
  EXPECT_THROW(labels_of({{"id2label", names}, {"label2id", {{"no", 1}, {"yes", 0}}}}), Error);
  for (const json& ids : {json{{"no", 0}, {"yes", 1}}, json{{"LABEL_0", 0}, {"LABEL_1", 1}}, json{{"no", "0"}}, json(nullptr)}) {
    EXPECT_EQ(labels_of({{"id2label", names}, {"label2id", ids}}).num_labels, 2) << ids;
  }
}

TEST(DecoderClassifierConfig, TakesClassifiersLanguageModelsAndBareModels) {
  const std::string text = read_file(tiny_encoder("qwen3") / "config.json");
  const TemporaryFolder folder;
  for (const char* architecture : {"Qwen3ForCausalLM", "Qwen3ForSequenceClassification", "Qwen3Model"}) {
    json config = json::parse(text);
    config["architectures"] = json::array({architecture});
    config["id2label"] = {{"0", "a"}, {"1", "b"}, {"2", "c"}};
    write_file_atomically(folder.path() / "config.json", config.dump());
    const model::DecoderConfig got = model::read_decoder_classifier_config(folder.path());
    EXPECT_EQ(got.architecture, "Qwen3ForSequenceClassification");
    EXPECT_EQ(got.num_labels, 3);
    EXPECT_EQ(got.initializer_range, 0.02);
    if (std::string(architecture) != "Qwen3ForCausalLM") {
      EXPECT_THROW(model::read_decoder_config(folder.path()), Error) << "not a language model";
    }
  }
}

}  // namespace
}  // namespace lockstep::testing
