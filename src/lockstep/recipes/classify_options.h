#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/data/classify_options.h"
#include "lockstep/launch/options.h"
#include "lockstep/model/options.h"
#include "lockstep/optim/options.h"
#include "lockstep/options/without.h"
#include "lockstep/recipes/older_options.h"
#include "lockstep/train/checkpoint_options.h"
#include "lockstep/train/evaluation_options.h"
#include "lockstep/train/options.h"

namespace lockstep::recipes {

/// What an evaluation reports and a prediction writes.
struct ClassifyOutputOptions {
  bool ignore_mismatched_sizes = false;
  std::optional<std::vector<std::string>> metric_name;
  std::optional<std::string> predictions;

  template <class V>
  void visit(V& v) {
    v.group("Results");
    v("ignore_mismatched_sizes", ignore_mismatched_sizes,
      "A stored head of another number of classes is left alone and a new one made.");
    v("metric_name", metric_name, "Metrics that an evaluation reports.").unset("the task's, or all that fit the labels");
    v("predictions", predictions, "File with a line for each test row: its number, label, and score per class.")
        .unit("path").unset("OUTPUT_DIR/predictions.jsonl");
  }
};

/// Everything `lockstep classify` can be told. Names and defaults are those of transformers' TrainingArguments (5.24).
struct ClassifyOptions {
  model::ModelOptions model;
  data::ClassifyDataOptions data;
  optim::OptimOptions optim;
  train::TrainOptions train;
  train::EvaluationOptions evaluation;
  train::CheckpointOptions checkpoints;
  ClassifyOutputOptions output;
  launch::LaunchOptions launch;
  OlderOptions older;

  /// trl's defaults, which the structs have, are others.
  ClassifyOptions() {
    optim.learning_rate = 5e-5;
    train.bf16 = false;
    train.logging_steps = 500;
  }

  template <class V>
  void visit(V& v) {
    // Adapters and quantised weights are trl's; mixtures of experts have no classifier here.
    options::Without model_visitor(v, {"use_peft", "lora_", "use_rslora", "use_dora", "load_in_", "bnb_", "use_bnb_", "router_"});
    model.visit(model_visitor);
    data.visit(v);
    options::Without optim_visitor(v, {"label_smoothing_factor", "average_tokens_across_devices", "loss_type"});
    optim.visit(optim_visitor);
    v("label_smoothing_factor", optim.label_smoothing_factor, "Share of the label's probability given to all classes.")
        .at_least(0).below(1);
    v("average_tokens_across_devices", optim.average_tokens_across_devices, "Divide the loss by the samples of all processes.")
        .refused("the loss is always the mean over the update's samples, on any number of processes", "Leave it out.");
    train.visit(v);
    evaluation.visit(v);
    checkpoints.visit(v);
    output.visit(v);
    launch.visit(v);
    older.visit(v);
  }
};

}  // namespace lockstep::recipes
