#pragma once

#include "lockstep/model/encoder_config.h"

/// Small encoders that between them use every branch.
namespace lockstep::testing {

inline model::EncoderConfig small_encoder(const std::string& model_type) {
  model::EncoderConfig c;
  c.model_type = model_type;
  c.prefix = model_type + ".";
  c.hidden_size = 24;
  c.intermediate_size = 40;
  c.num_layers = 2;
  c.num_heads = 4;
  c.vocab_size = 48;
  c.max_position_embeddings = 80;
  c.num_labels = 3;
  return c;
}

inline model::EncoderConfig small_bert() {
  model::EncoderConfig c = small_encoder("bert");
  c.architecture = "BertForSequenceClassification";
  c.type_vocab_size = 2;
  c.pad_token_id = 0;
  return c;
}
/// Positions from pad_token_id + 1, one token type, tanh GELU.
inline model::EncoderConfig small_roberta() {
  model::EncoderConfig c = small_encoder("roberta");
  c.architecture = "RobertaForSequenceClassification";
  c.type_vocab_size = 1;
  c.pad_token_id = 1;
  c.first_position = 2;
  c.activation = "gelu_tanh";
  return c;
}
/// No token types.
inline model::EncoderConfig small_distilbert() {
  model::EncoderConfig c = small_encoder("distilbert");
  c.architecture = "DistilBertForSequenceClassification";
  return c;
}

}  // namespace lockstep::testing
