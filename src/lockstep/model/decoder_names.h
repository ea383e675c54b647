#pragma once

#include "lockstep/model/config.h"

#include <string>

namespace lockstep::model::detail {

/// Names of a decoder's modules in its checkpoint, without ".weight" and ".bias"; empty: the family has none. Inside
/// model/ only.
struct DecoderNames {
  std::string embedding, positions, final_norm;
  std::string head;                        ///< untied; or of a classifier
};
DecoderNames decoder_names(const DecoderConfig& config);

struct DecoderLayerNames {
  std::string q, k, v, qkv, o, q_norm, k_norm;
  std::string gate, up, gate_up, down;     ///< of a dense MLP
  std::string norm1, norm2, post_attention, post_mlp;
  std::string router;                      ///< of a sparse MLP
};
struct ExpertNames {
  std::string gate, up, down;
};
ExpertNames expert_names(const DecoderConfig& config, int64_t layer, int64_t expert);
DecoderLayerNames decoder_layer_names(const DecoderConfig& config, int64_t layer);

}  // namespace lockstep::model::detail
