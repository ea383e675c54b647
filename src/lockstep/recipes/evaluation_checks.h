#pragma once

#include "lockstep/optim/options.h"
#include "lockstep/options/field.h"
#include "lockstep/train/checkpoint_options.h"
#include "lockstep/train/evaluation_options.h"
#include "lockstep/train/options.h"

namespace lockstep::recipes {

struct EvaluationChecks {
  const train::TrainOptions& train;
  const train::EvaluationOptions& evaluation;
  const train::CheckpointOptions& checkpoints;
  const optim::OptimOptions& optim;
  bool evaluates = false;               ///< during training
};

/// What evaluations, checkpoints, the best model and early stopping need of each other.
void check_evaluation(const EvaluationChecks& options, const options::Origins& origins, options::Problems& problems,
                      options::Words& notes);

}  // namespace lockstep::recipes
