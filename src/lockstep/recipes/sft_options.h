#pragma once

#include "lockstep/data/options.h"
#include "lockstep/launch/options.h"
#include "lockstep/model/options.h"
#include "lockstep/optim/options.h"
#include "lockstep/train/checkpoint_options.h"
#include "lockstep/train/evaluation_options.h"
#include "lockstep/train/options.h"

namespace lockstep::recipes {

/// Everything `lockstep sft` can be told.
struct SftOptions {
  model::ModelOptions model;
  data::DataOptions data;
  optim::OptimOptions optim;
  train::TrainOptions train;
  train::CheckpointOptions checkpoints;
  train::EvaluationOptions evaluation;
  launch::LaunchOptions launch;

  template <class V>
  void visit(V& v) {
    model.visit(v);
    data.visit(v);
    optim.visit(v);
    train.visit(v);
    checkpoints.visit_not_yet(v);
    evaluation.visit_not_yet(v);
    launch.visit(v);
  }
};

}  // namespace lockstep::recipes
