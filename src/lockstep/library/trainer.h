#pragma once

#include "lockstep/library/api.h"
#include "lockstep/library/callback.h"
#include "lockstep/library/classifier.h"
#include "lockstep/library/dataset.h"
#include "lockstep/library/loss.h"
#include "lockstep/library/training_arguments.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Of all rows of an evaluation, in the order of the data.
struct EvalPrediction {
  int64_t num_rows = 0;
  int64_t num_labels = 0;
  std::span<const float> predictions;   ///< logits [num_rows, num_labels]
  std::span<const float> label_ids;     ///< as LossInput::labels
};

/// What a Trainer is made of; names as transformers' Trainer has them.
struct TrainerParts {
  SequenceClassifier model;
  TrainingArguments args = {};
  Dataset train_dataset = {};           ///< tokenized, with a column "label" (or "labels")
  Dataset eval_dataset = {};            ///< the same; may be empty
  /// In place of the model's own loss.
  LossFunction compute_loss_func = {};
  /// Says which loss that is: a run is only continued with a loss of the same name.
  std::string loss_name = "own";
  /// In place of the metrics that fit the labels. Names get the prefix "eval_" or "test_". Called on every rank.
  std::function<Metrics(const EvalPrediction&)> compute_metrics = {};
  std::vector<std::shared_ptr<TrainerCallback>> callbacks = {};
};

struct TrainOutput {
  int64_t global_step = 0;              ///< updates done
  double training_loss = 0;             ///< mean over this process's updates
  std::optional<int64_t> best_step;     ///< whose model was kept, where load_best_model_at_end chose another than the last
  Metrics metrics;                      ///< train_runtime, train_samples_per_second, epoch ..., and the evaluation at the end
};

struct PredictionOutput {
  int64_t num_rows = 0;
  int64_t num_labels = 0;
  std::vector<float> predictions;       ///< logits [num_rows, num_labels], on every rank
  std::vector<std::string> id2label;    ///< names of the columns; empty for regression
  Metrics metrics;                      ///< test_loss ...; of rows without labels only the times
};

/// Trains, evaluates and uses a classifier, alone or together with the other processes of the job: train(), evaluate() and
/// predict() are collective, and join the group (distributed.h) if nobody has. Not thread-safe. All throw lockstep::Error; the
/// first that other ranks make of one rank's error is Error{Peer}.
class LOCKSTEP_API Trainer {
 public:
  /// Checks everything that can be checked without the other processes: Error{Usage} lists all arguments at fault,
  /// Error{Data} names the first row.
  explicit Trainer(TrainerParts parts);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  /// Once. Leaves in args.output_dir what `lockstep classify` leaves (docs/classify.md); rank 0 writes. Continues a run if
  /// args.resume_from_checkpoint says so. Throws Error{Resumable} when SIGTERM or SIGUSR1 asked for the end and a checkpoint is
  /// complete; while it runs those signals are its own unless save_strategy is no.
  TrainOutput train();
  /// Of the model as it is now: the trained one, or as it was loaded. Without an argument of args' eval_dataset.
  Metrics evaluate();
  Metrics evaluate(const Dataset& dataset);
  PredictionOutput predict(const Dataset& dataset);

  /// What was accepted with a remark, one line each: fields that have no object here, older names.
  const std::vector<std::string>& notes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
