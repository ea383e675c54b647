#pragma once

#include "lockstep/data/label_set.h"
#include "lockstep/library/classifier.h"
#include "lockstep/model/config.h"
#include "lockstep/model/encoder_config.h"
#include "lockstep/model/label_fields.h"

#include <memory>
#include <string>
#include <variant>

/// What lies behind SequenceClassifier. Not installed.
namespace lockstep {

struct SequenceClassifier::Impl {
  std::string folder;
  ClassifierOptions options;
  std::variant<model::EncoderConfig, model::DecoderConfig> config;
  std::string architecture;
  model::LabelFields labels;            ///< of config.json; names empty where nobody named the classes
  int64_t vocab_size = 0;
  int64_t max_positions = 0;            ///< tokens of a row that the model can take
};

struct ClassifierAccess {
  static const SequenceClassifier::Impl& of(const SequenceClassifier& model) { return *model.impl_; }
};

/// transformers' problem_type that the options ask for, or "".
std::string wished_problem(const ClassifierOptions& options);
/// Holds the classes that were found in rows (or the model) against the options, which may add classes and name them.
void fit_labels(data::LabelSet& found, const ClassifierOptions& options, const std::string& column);

}  // namespace lockstep
