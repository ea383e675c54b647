#include "lockstep/model/label_fields.h"

#include "lockstep/base/error.h"

#include <algorithm>

namespace lockstep::model {

namespace {

/// Whoever reads the one must find what the other says. Values that are texts, and names that only label2id has, are let be.
void require_same_ids(const JsonFields& fields, const std::vector<std::string>& names) {
  const JsonFields ids = fields.object("label2id");
  for (size_t id = 0; id < names.size(); ++id) {
    if (std::count(names.begin(), names.end(), names[id]) > 1 || !ids.is_integer(names[id])) continue;
    if (ids.integer(names[id], 0) == static_cast<int64_t>(id)) continue;
    throw Error::data("{}: but id2label.{} = \"{}\". Correct one of the two.", ids.where(names[id]), id, names[id]);
  }
}

}  // namespace

LabelFields read_label_fields(const JsonFields& fields) {
  constexpr int64_t kMaxLabels = 1 << 20;
  LabelFields out;
  const JsonFields names = fields.object("id2label");
  for (int64_t id = 0; names.has(std::to_string(id)); ++id) out.names.push_back(names.text(std::to_string(id), ""));
  if (static_cast<int64_t>(out.names.size()) != names.num_keys())
    throw Error::data("{}: the indices are not 0 to {}. Correct it.", fields.where("id2label"), names.num_keys() - 1);
  require_same_ids(fields, out.names);
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
