#pragma once

#include "lockstep/model/encoder_config.h"

#include <string>

namespace lockstep::model::detail {

/// Names of an encoder's modules in its checkpoint, without ".weight" and ".bias". Inside model/ only.
struct EncoderLayerNames {
  std::string q, k, v, o, norm1, up, down, norm2;
};
EncoderLayerNames encoder_layer_names(const EncoderConfig& config, int64_t layer);

}  // namespace lockstep::model::detail
