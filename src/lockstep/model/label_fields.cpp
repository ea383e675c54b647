#include "lockstep/model/label_fields.h"

#include "lockstep/base/error.h"

namespace lockstep::model {

LabelFields read_label_fields(const JsonFields& fields) {
  constexpr int64_t kMaxLabels = 1 << 20;
  LabelFields out;
  const JsonFields names = fields.object("id2label");
  for (int64_t id = 0; names.has(std::to_string(id)); ++id) out.names.push_back(names.text(std::to_string(id), ""));
  if (static_cast<int64_t>(out.names.size()) != names.num_keys())
    throw Error::data("{}: the indices are not 0 to {}. Correct it.", fields.where("id2label"), names.num_keys() - 1);
  out.num_labels = out.names.empty() ? fields.size("num_labels", 2, kMaxLabels) : static_cast<int64_t>(out.names.size());
  out.problem_type = fields.text("problem_type", "");
  if (!out.problem_type.empty() && out.problem_type != "single_label_classification" &&
      out.problem_type != "multi_label_classification" && out.problem_type != "regression")
    throw Error::data("{}: this problem is not there. There are: single_label_classification, "
                      "multi_label_classification, regression.",
                      fields.where("problem_type"));
  return out;
}

}  // namespace lockstep::model
