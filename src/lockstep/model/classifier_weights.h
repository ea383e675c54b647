#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/tensor/param_layout.h"
#include "lockstep/tensor/safetensors.h"

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep::model {

struct ClassifierWeightsOptions {
  std::string prefix;                   ///< of the base model's parameters: EncoderConfig::prefix, "model." for decoders
  double initializer_range = 0.02;      ///< of new parameters
  uint64_t seed = 42;                   ///< of new parameters
  bool ignore_mismatched_sizes = false; ///< a stored head of another shape is left alone and made new
};

struct ClassifierWeights {
  at::ScalarType stored_dtype;              ///< float32 when they differ
  std::vector<tensor::ParamId> made_new;    ///< pooler and head, where the folder lacks them: init.h
  std::vector<std::string> unused;          ///< stored tensors that the classifier has no place for, "NAME (FILE)"
};

/// Weights of a sequence classifier from any folder of its family: a classifier, a language model, or the bare base
/// model, whose names lack the prefix. The old names LayerNorm.gamma and .beta are taken too. Everything but the pooler
/// and the head must be there. Buffers that follow from config.json (position_ids, rotary_emb.inv_freq) are passed over.
/// Checks shapes and dtypes (float32, bfloat16, float16) before the first `read`; then calls read(id, values) for every
/// parameter, new ones included (float32), each stored one searched for NaN and infinite values just before.
/// Throws Error{Data} naming file, tensor, found and wanted. With a `team`, `read` is called from its threads, in no order.
ClassifierWeights load_classifier_weights(const tensor::ParamLayout& layout, const tensor::WeightFiles& files,
                                          const ClassifierWeightsOptions& options,
                                          const std::function<void(tensor::ParamId, const at::Tensor&)>& read,
                                          ThreadTeam* team = nullptr);

}  // namespace lockstep::model
