#pragma once

#include "lockstep/model/config.h"
#include "lockstep/model/json_fields.h"

#include <span>
#include <string_view>

/// The table of decoder families. Inside model/ only; docs/families.md shows how one is added.
namespace lockstep::model::detail {

/// What a key has when config.json lacks it: transformers/models/<type>/configuration_<type>.py (5.24).
struct Family {
  std::string_view model_type, architecture;
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads;
  int64_t num_kv_heads;                ///< 0: num_attention_heads
  int64_t head_dim;                    ///< 0: hidden_size / num_attention_heads
  int64_t max_positions;
  double rms_norm_eps = 1e-6, rope_theta = 10000;
  bool classifier = false;             ///< ...ForSequenceClassification is there, too
  /// Reads what only this family has; what all have is read before.
  void (*read)(const JsonFields& fields, DecoderConfig& config);
};
std::span<const Family> families();

/// Sizes of the classic keys, then Family::read.
DecoderConfig read_family(const JsonFields& fields, const Family& family);

/// rope_parameters, or rope_theta with rope_scaling. Needs head_dim and max_position_embeddings.
void read_rope(const JsonFields& fields, double absent_theta, DecoderConfig& config);

}  // namespace lockstep::model::detail
