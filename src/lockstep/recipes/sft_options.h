#pragma once

#include "lockstep/data/options.h"
#include "lockstep/launch/options.h"
#include "lockstep/model/options.h"
#include "lockstep/optim/options.h"
#include "lockstep/options/without.h"
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
    checkpoints.visit(v);
    options::Without evaluation_visitor(v, {"do_train", "do_eval", "do_predict"});
    evaluation.visit(evaluation_visitor);
    v("do_train", evaluation.do_train, "A switch that trl does not read.").no_object("lockstep sft always trains");
    v("do_eval", evaluation.do_eval, "A switch that trl does not read.").no_object("--eval_strategy says when to evaluate");
    v("do_predict", evaluation.do_predict, "A switch that trl does not read.").no_object("there is nothing to predict");
    launch.visit(v);
  }
};

}  // namespace lockstep::recipes
