#pragma once

#include "lockstep/loss/lm_head.h"
#include "lockstep/model/decoder.h"
#include "lockstep/tensor/grad_sink.h"
#include "lockstep/tensor/param_store.h"
#include "lockstep/train/plan.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

/// One grain through all blocks and back: a column of the grid.
namespace lockstep::train {

/// Packs the grain's documents.
model::GrainInput make_grain(const UpdatePlan& plan, const data::Grain& grain,
                             const std::vector<data::TokenRow>& rows);

struct Network {
  const model::Decoder& decoder;
  const tensor::ParamStore& params;
  loss::LmHead head;
};
loss::LmHead head_of(const model::Decoder& decoder);

/// Forward and backward; every weight gradient goes to `sink`. `after_forward` is called once, when the loss is known.
loss::LossSums run_grain(const Network& network, const model::GrainInput& grain, double divisor, model::Keep keep,
                         tensor::GradSink& sink, const std::function<void()>& after_forward);

/// Where the numbers of a grain stop being finite.
struct NonFiniteReport {
  std::string block;               ///< "embedding", "layer 3", "head", or "gradient of <parameter>"
  std::vector<int64_t> sample_ids;
};
/// Runs the grain again, looking at every block. Empty when everything is finite.
std::optional<NonFiniteReport> diagnose_grain(const Network& network, const model::GrainInput& grain, double divisor);

}  // namespace lockstep::train
