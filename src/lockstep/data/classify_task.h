#pragma once

#include "lockstep/data/classify_options.h"
#include "lockstep/data/table.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// What a row of a classification data set means: which columns are the texts, which is the label.
namespace lockstep::data {

enum class Problem { SingleLabel, MultiLabel, Regression };
/// transformers' problem_type: "single_label_classification" ...
std::string_view name(Problem problem);
/// The inverse; the text must be one of the three.
Problem problem_from_name(std::string_view text);

/// A task of GLUE (Wang et al., 2018) as Hugging Face's data set "glue" has it. Its metrics are those of
/// metrics::glue_metrics(name).
struct GlueTask {
  std::string_view name;
  std::vector<std::string> first;    ///< names of the column with the (first) text: Hugging Face's, then GLUE's own files'
  std::vector<std::string> second;   ///< of the second text; empty: single texts
  std::vector<std::string> label;
  std::vector<std::string> label_names;  ///< by class; empty: regression
  std::vector<std::string> validation_splits = {"validation"};
  std::vector<std::string> test_splits = {"test"};
  std::vector<std::string> headerless = {};  ///< columns of GLUE's own training file, where it has no header

  Problem problem() const { return label_names.empty() ? Problem::Regression : Problem::SingleLabel; }
};

/// nullptr for an unknown name.
const GlueTask* find_glue_task(std::string_view name);
std::span<const GlueTask> glue_tasks();

struct Columns {
  std::string text;
  std::optional<std::string> pair;
  std::optional<std::string> label;  ///< nothing only where none is needed and none is there
  std::vector<std::string> chosen;   ///< "text_column = sentence1": those that no flag named, for the report
};

/// From the flags, the task and the data's first row. What neither says is guessed where one answer is possible: a label
/// called label or labels; a known pair of names (sentence1 and sentence2, premise and hypothesis ...), or the only
/// column of texts. Throws Error{Data} naming the columns that are there, and Error{Usage} for a column used twice.
Columns choose_columns(const ClassifyDataOptions& options, const GlueTask* task, const TableRow& first,
                       bool needs_label);

}  // namespace lockstep::data
