#pragma once

#include "lockstep/data/classify_task.h"
#include "lockstep/data/table.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// From the values of a label column to what a loss takes.
namespace lockstep::data {

/// A label as it was read.
struct LabelCell {
  Cell value;
  RowPlace place;
  std::string_view null_words = "there is no label";  ///< what to say of it when it is null; a literal
};

/// The labels of one split. Values of CSV and TSV are typed here, by the whole column: whole numbers, else numbers,
/// else True and False, else texts; an empty cell is null.
struct LabelColumn {
  std::string name;  ///< of the column, for messages
  std::vector<LabelCell> cells;
  /// Of a typed column of numbers: the first that is not whole, where others are.
  std::optional<size_t> first_fraction = {};

  void type_texts();
};

/// What the numbers of LabelledRow::labels mean.
struct LabelSet {
  Problem problem = Problem::SingleLabel;
  int64_t num_labels = 2;          ///< outputs of the model: classes, or targets
  /// MultiLabel: rows hold one 0 or 1 per class instead of the classes' names.
  bool is_indicator = false;
  /// What the numbers 0, 1, ... stand for in rows that hold numbers instead of names: the task's or the model's order.
  std::vector<std::string> numbered;
  std::vector<std::string> notes;  ///< how it was found, one line each

  /// id2label: by class; empty for regression.
  const std::vector<std::string>& names() const { return names_; }
  void set_names(std::vector<std::string> names);
  std::optional<int64_t> find(std::string_view name) const;

 private:
  std::vector<std::string> names_;
  std::map<std::string, int64_t, std::less<>> index_;
};

/// How classes are found and ordered, as transformers' run_classification.py and run_glue.py do it: those of the training
/// rows, texts by their characters, whole numbers by their values, -1 left out; or the task's own. If `model_names` (the
/// model's id2label) are the same names in another order, theirs holds.
/// Lists are several classes at once (or 0/1 per class: lists of booleans or fractions, and lists of 0 and 1 that repeat
/// a value); fractions are regression. options.problem_type overrides.
/// Throws what require_labels() throws, and Error{Data} with the first row at fault: a value of another kind than the first row's, a list of another
/// length, a number that is not finite, fewer than two classes.
LabelSet find_labels(const LabelColumn& training, const ClassifyDataOptions& options, const GlueTask* task,
                     std::span<const std::string> model_names);

/// Without training rows: what the task or the model says. Throws Error{Data} if neither does.
LabelSet labels_of_model(const ClassifyDataOptions& options, const GlueTask* task,
                         std::span<const std::string> model_names, std::string_view model_problem);

/// What a model's config.json says of its classes.
struct ModelLabels {
  std::span<const std::string> names;  ///< id2label; none, or placeholders: nobody named them
  int64_t num_labels = 0;
  std::string_view problem;            ///< or ""
};
/// Whether all are "LABEL_0", "LABEL_1" ..., as transformers calls classes that nobody named.
bool are_placeholders(std::span<const std::string> names);

/// Labels where nothing is trained: those of the model. `rows`: the first split that is used, or nullptr. They say whether
/// lists hold 0 and 1 per class, and name the classes that the model does not, if there are as many of them; a note then
/// tells which is which. Throws as labels_of_model(), and Error{Data} for rows of another number of names.
LabelSet labels_without_training(const ClassifyDataOptions& options, const GlueTask* task, const ModelLabels& model,
                                 const LabelColumn* rows);

/// Throws Error{Data} if rows have no label (null; for classes -1 too, as in GLUE's test splits): the first, and how many.
void require_labels(const LabelColumn& column, Problem problem);

enum class Unlabelled { Refused, Allowed };  ///< Allowed: null and -1 give no labels

/// LabelledRow::labels: one class index, one 0/1 per class, or the targets. Empty if there is none and that is allowed.
/// Throws Error{Data} with the place for a label that is not in the set.
std::vector<float> to_numbers(const LabelCell& label, const LabelSet& set, std::string_view column,
                              Unlabelled unlabelled);

}  // namespace lockstep::data
