#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/tensor/param_store.h"
#include "lockstep/tensor/safetensors.h"

#include <functional>

namespace lockstep::model {

/// Checks the folder's tensors against the layout before `read` is called: missing and unexpected names, shapes,
/// dtypes (float32, bfloat16, float16). Known extras are reported as ignored: rotary buffers, and a tied
/// lm_head.weight if it equals the embedding (one that differs is an error: which of the two is meant?).
/// Then calls `read(id, tensor)` for every parameter, in layout order, with the stored tensor (a view of the mapped
/// file), each searched for NaN and infinite values just before. Returns the stored dtype (float32 when they differ).
/// Throws Error{Data} naming file, tensor, found and wanted.
/// With a `team`, its threads take one parameter each: `read` is then called from several threads, in no order.
at::ScalarType load_weights(const tensor::ParamLayout& layout, const tensor::WeightFiles& files, bool tied_head,
                            const std::function<void(tensor::ParamId, const at::Tensor&)>& read,
                            ThreadTeam* team = nullptr);

}  // namespace lockstep::model
