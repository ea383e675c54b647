#pragma once

#include "lockstep/library/api.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct ClassifierOptions {
  /// Classes, or targets of a regression. Unset: as many as the training rows have. 1 means regression.
  std::optional<int64_t> num_labels = {};
  /// "single_label_classification", "multi_label_classification" or "regression". Empty: as the labels look.
  std::string problem_type = {};
  /// Names of the classes 0, 1, ... Empty: the labels themselves.
  std::vector<std::string> id2label = {};
  /// A stored head of another number of classes is left alone and a new one made.
  bool ignore_mismatched_sizes = false;
};

/// Which model to begin with: bert, roberta, distilbert, or llama, qwen2, qwen3 with a head on the last token. A head that the
/// folder lacks is made from the seed. The weights are read when a Trainer needs them. Cheap to copy.
class LOCKSTEP_API SequenceClassifier {
 public:
  /// `folder`: as transformers stores it. Throws Error{Data} when a file is missing or broken or the family is unknown,
  /// Error{Usage} for options that do not fit together.
  static SequenceClassifier from_pretrained(const std::string& folder, const ClassifierOptions& options = {});

  const std::string& folder() const;
  /// "BertForSequenceClassification" ...
  const std::string& architecture() const;

  struct Impl;

 private:
  friend struct ClassifierAccess;
  explicit SequenceClassifier(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

}  // namespace lockstep
