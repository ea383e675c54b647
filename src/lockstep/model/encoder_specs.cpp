#include "lockstep/model/encoder.h"
#include "lockstep/model/encoder_names.h"
#include "lockstep/model/spec_list.h"

#include <fmt/format.h>

namespace lockstep::model {

detail::EncoderLayerNames detail::encoder_layer_names(const EncoderConfig& config, int64_t layer) {
  if (config.model_type == "distilbert") {
    const std::string p = fmt::format("{}transformer.layer.{}.", config.prefix, layer);
    return {p + "attention.q_lin",   p + "attention.k_lin", p + "attention.v_lin", p + "attention.out_lin",
            p + "sa_layer_norm", p + "ffn.lin1",        p + "ffn.lin2",        p + "output_layer_norm"};
  }
  const std::string p = fmt::format("{}encoder.layer.{}.", config.prefix, layer);
  return {p + "attention.self.query",       p + "attention.self.key", p + "attention.self.value",
          p + "attention.output.dense",     p + "attention.output.LayerNorm",
          p + "intermediate.dense", p + "output.dense",       p + "output.LayerNorm"};
}

std::vector<tensor::ParamSpec> Encoder::param_specs(const EncoderConfig& c) {
  detail::SpecList list;
  const std::string embeddings = c.prefix + "embeddings.";
  const int64_t H = c.hidden_size;
  const auto add_positions = [&] {
    list.add_table(embeddings + "position_embeddings.weight", c.max_position_embeddings, H, 0);
  };
  list.add_table(embeddings + "word_embeddings.weight", c.vocab_size, H, 0);
  if (c.model_type != "roberta") add_positions();
  if (c.type_vocab_size > 0) list.add_table(embeddings + "token_type_embeddings.weight", c.type_vocab_size, H, 0);
  list.add_layer_norm(embeddings + "LayerNorm", H, 0);
  if (c.model_type == "roberta") add_positions();

  for (int layer = 0; layer < c.num_layers; ++layer) {
    const detail::EncoderLayerNames names = detail::encoder_layer_names(c, layer);
    const int block = layer + 1;
    for (const std::string* name : {&names.q, &names.k, &names.v, &names.o}) list.add_linear(*name, H, H, true, block);
    list.add_layer_norm(names.norm1, H, block);
    list.add_linear(names.up, c.intermediate_size, H, true, block);
    list.add_linear(names.down, H, c.intermediate_size, true, block);
    list.add_layer_norm(names.norm2, H, block);
  }

  const int head = static_cast<int>(c.num_layers) + 1;
  const bool roberta = c.model_type == "roberta";
  list.add_linear(roberta ? "classifier.dense" : c.model_type == "bert" ? c.prefix + "pooler.dense" : "pre_classifier", H,
                  H, true, head);
  list.add_linear(roberta ? "classifier.out_proj" : "classifier", c.num_labels, H, true, head);
  return std::move(list.specs);
}

}  // namespace lockstep::model
