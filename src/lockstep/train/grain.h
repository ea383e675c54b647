#pragma once

#include "lockstep/data/examples.h"
#include "lockstep/loss/lm_head.h"
#include "lockstep/model/decoder.h"
#include "lockstep/tensor/grad_sink.h"
#include "lockstep/tensor/param_store.h"
#include "lockstep/train/task.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

/// One grain through all blocks of a decoder and back: a column of the grid.
namespace lockstep::train {

/// Packs the grain's documents.
model::GrainInput make_grain(const GrainRows& grain, const std::vector<data::TokenRow>& rows);

struct Network {
  const model::Decoder& decoder;
  const tensor::ParamStore& params;
  loss::LmHead head;
};
loss::LmHead head_of(const model::Decoder& decoder);

/// By what a grain's losses are divided: the update's targets and, for the router loss, its tokens.
struct Divisors {
  double targets = 1, tokens = 1;
};

/// Forward and backward; every weight gradient goes to `sink`. `after_forward` is called once, when the loss is known.
loss::LossSums run_grain(const Network& network, const model::GrainInput& grain, const Divisors& divisors, model::Keep keep,
                         tensor::GradSink& sink, const std::function<void()>& after_forward);

/// Forward alone. The decoder must have been made without dropout.
loss::LossSums forward_grain(const Network& network, const model::GrainInput& grain);

/// Runs the grain again, looking at every block. Empty when everything is finite.
std::optional<NonFiniteReport> diagnose_grain(const Network& network, const model::GrainInput& grain, const Divisors& divisors);

}  // namespace lockstep::train
