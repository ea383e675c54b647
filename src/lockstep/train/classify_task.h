#pragma once

#include "lockstep/data/classify.h"
#include "lockstep/loss/classifier.h"
#include "lockstep/model/classifier_weights.h"
#include "lockstep/model/encoder.h"
#include "lockstep/train/task.h"

#include <memory>
#include <vector>

namespace lockstep::train {

struct ClassifyTaskOptions {
  at::ScalarType compute_dtype = at::kBFloat16;
  loss::ClassifierLoss loss;
  bool dropout = true;                  ///< as the model's config says; false: evaluation
  uint64_t seed = 42;                   ///< of dropout masks and of new parameters
  bool ignore_mismatched_sizes = false; ///< a stored head of another shape is made new
};

/// What was found when the weights were read.
struct ClassifyWeights {
  std::vector<std::string> made_new;    ///< names of parameters the folder lacks
  std::vector<std::string> unused;      ///< stored tensors that the classifier has no place for
};

/// A sequence classifier over labelled rows: an encoder (bert, roberta, distilbert) with its family's head, or a decoder
/// with a score of its last token. A sample's share of the divisor is 1 if it has a label, else 0.
class ClassifyTask : public Task {
 public:
  int64_t output_width() const override { return num_labels_; }
  bool has_entropy() const override { return options_.loss.problem == loss::Problem::SingleLabel && !options_.loss.own; }
  bool has_accuracy() const override { return options_.loss.problem != loss::Problem::Regression; }
  const std::vector<SampleSize>& sizes() const override { return sizes_; }
  at::ScalarType compute_dtype() const override { return options_.compute_dtype; }
  at::ScalarType load_weights(const tensor::ParamLayout& layout, const tensor::WeightFiles& files,
                              const std::function<void(tensor::ParamId, const at::Tensor&)>& read,
                              ThreadTeam& team) const override;
  /// Of the last load_weights().
  const ClassifyWeights& loaded() const { return loaded_; }

 protected:
  ClassifyTask(const std::vector<data::LabelledRow>& rows, int64_t num_labels, ClassifyTaskOptions options);

  /// The grain's documents, and their labels one after the other; a row without one gets kNoLabel.
  struct Packed {
    model::GrainInput input;
    std::vector<float> labels;
  };
  Packed pack(const GrainRows& grain) const;

  std::string prefix_;                  ///< of the base model's parameters
  double initializer_range_ = 0.02;
  int64_t num_labels_;
  ClassifyTaskOptions options_;

 private:
  const std::vector<data::LabelledRow>& rows_;
  std::vector<SampleSize> sizes_;
  mutable ClassifyWeights loaded_;      ///< written by load_weights() alone, before any thread computes
};

/// Keeps a reference to `rows`. `config.num_labels` is the width of the head.
std::unique_ptr<ClassifyTask> make_classify_task(const model::EncoderConfig& config,
                                                 const std::vector<data::LabelledRow>& rows,
                                                 const ClassifyTaskOptions& options);
std::unique_ptr<ClassifyTask> make_classify_task(const model::DecoderConfig& config,
                                                 const std::vector<data::LabelledRow>& rows,
                                                 const ClassifyTaskOptions& options);

}  // namespace lockstep::train
