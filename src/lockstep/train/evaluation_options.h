#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::train {

/// When a run evaluates, and which model is the best. Members are named as the flags of transformers; the initialisers are
/// its defaults, except those marked ours. Written in the words of options/field.h.
struct EvaluationOptions {
  bool do_train = false;
  bool do_eval = false;
  bool do_predict = false;
  std::string eval_strategy = "no";
  std::optional<double> eval_steps;  ///< unset: logging_steps
  double eval_delay = 0;             ///< updates or epochs, as eval_strategy counts
  bool eval_on_start = false;
  bool prediction_loss_only = false;
  bool load_best_model_at_end = false;
  std::optional<std::string> metric_for_best_model;
  std::optional<bool> greater_is_better;
  std::optional<int64_t> early_stopping_patience;  ///< ours: EarlyStoppingCallback's
  double early_stopping_threshold = 0;             ///< ours: the same

  int64_t per_device_eval_batch_size = 8;
  bool eval_do_concat_batches = true;
  bool eval_use_gather_object = false;
  std::optional<int64_t> eval_accumulation_steps;
  std::vector<std::string> include_for_metrics;
  bool batch_eval_metrics = false;
  bool bf16_full_eval = false;
  bool fp16_full_eval = false;

  template <class V>
  void visit(V& v) {
    v.group("Evaluation");
    v("do_train", do_train, "Train. Without any of do_train, do_eval, do_predict: all that there is data for.");
    v("do_eval", do_eval, "Evaluate, after training if there is any.");
    v("do_predict", do_predict, "Predict for the test rows, after training if there is any.");
    v("eval_strategy", eval_strategy, "When to evaluate during training.").choices({"no", "steps", "epoch"});
    v("eval_steps", eval_steps, "Updates between evaluations; below 1 a share of all updates.")
        .unit("updates").unset("logging_steps").above(0);
    v("eval_delay", eval_delay, "Updates, or epochs with eval_strategy epoch, before the first evaluation.").at_least(0);
    v("eval_on_start", eval_on_start, "Evaluate before the first update too.");
    v("prediction_loss_only", prediction_loss_only, "Report the loss and no other metric.");
    v("load_best_model_at_end", load_best_model_at_end, "The trained model is the best one evaluated, not the last.");
    v("metric_for_best_model", metric_for_best_model, "What is best: a metric of the evaluation, as eval_loss or f1.")
        .unset("loss");
    v("greater_is_better", greater_is_better, "Whether more of that metric is better.")
        .unset("true unless its name ends in loss");
    v("early_stopping_patience", early_stopping_patience,
      "Stop after so many evaluations in a row that are not better than the best.").unset("never").at_least(1);
    v("early_stopping_threshold", early_stopping_threshold, "By how much an evaluation must be better to count.")
        .at_least(0);
    v("per_device_eval_batch_size", per_device_eval_batch_size, "Samples per evaluation step.")
        .no_object("rows are evaluated in pieces that the data alone decides").at_least(1);
    v("eval_do_concat_batches", eval_do_concat_batches, "Join the outputs.").no_object(kStreamed);
    v("eval_use_gather_object", eval_use_gather_object, "How outputs are gathered.").no_object(kStreamed);
    v("eval_accumulation_steps", eval_accumulation_steps, "When outputs leave the GPU.").no_object(kStreamed);
    v("batch_eval_metrics", batch_eval_metrics, "Metrics batch by batch.").no_object(kStreamed);
    v("include_for_metrics", include_for_metrics, "Inputs given to metrics.")
        .no_object("the metrics need outputs and labels alone");
    v("bf16_full_eval", bf16_full_eval, "Evaluate in bfloat16.").refused(kSameType, "Use --bf16 true for both.");
    v("fp16_full_eval", fp16_full_eval, "Evaluate in float16.").refused(kSameType, "Use --bf16 true for both.");
  }

 private:
  static constexpr const char* kStreamed = "outputs are summed up row by row and never kept on a device";
  static constexpr const char* kSameType = "evaluation computes in the type that training computes in";
};

}  // namespace lockstep::train
