#pragma once

#include "lockstep/model/json_fields.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::model {

/// What config.json says about the classes of a sequence classifier.
struct LabelFields {
  int64_t num_labels = 2;               ///< entries of id2label, else num_labels, else 2 (the default of transformers)
  std::vector<std::string> names;       ///< of id2label, by class index; empty when absent
  std::string problem_type;             ///< single_label_classification, multi_label_classification, regression or ""
};

/// Throws Error{Data} for an id2label whose indices leave gaps, for a label2id that contradicts it, and for an unknown problem_type.
LabelFields read_label_fields(const JsonFields& fields);

}  // namespace lockstep::model
