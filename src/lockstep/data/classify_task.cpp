#include "lockstep/data/classify_task.h"

#include "lockstep/base/error.h"
#include "lockstep/data/text_table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

namespace lockstep::data {
namespace {

using Names = std::vector<std::string>;

const std::vector<GlueTask>& tasks() {
  static const std::vector<GlueTask> kTasks = {
      {.name = "cola", .first = {"sentence"}, .second = {}, .label = {"label"},
       .label_names = {"unacceptable", "acceptable"},
       .headerless = {"source", "label", "mark", "sentence"}},
      {.name = "mnli", .first = {"premise", "sentence1"}, .second = {"hypothesis", "sentence2"},
       .label = {"label", "gold_label"}, .label_names = {"entailment", "neutral", "contradiction"}, .validation_splits = {"validation_matched", "validation_mismatched"},
       .test_splits = {"test_matched", "test_mismatched"}},
      {.name = "mrpc", .first = {"sentence1", "#1 String"}, .second = {"sentence2", "#2 String"},
       .label = {"label", "Quality"}, .label_names = {"not_equivalent", "equivalent"}},
      {.name = "qnli", .first = {"question"}, .second = {"sentence"}, .label = {"label"},
       .label_names = {"entailment", "not_entailment"}},
      {.name = "qqp", .first = {"question1"}, .second = {"question2"}, .label = {"label", "is_duplicate"},
       .label_names = {"not_duplicate", "duplicate"}},
      {.name = "rte", .first = {"sentence1"}, .second = {"sentence2"}, .label = {"label"},
       .label_names = {"entailment", "not_entailment"}},
      {.name = "sst2", .first = {"sentence"}, .second = {}, .label = {"label"}, .label_names = {"negative", "positive"}},
      {.name = "stsb", .first = {"sentence1"}, .second = {"sentence2"}, .label = {"label", "score"}, .label_names = {}},
      {.name = "wnli", .first = {"sentence1"}, .second = {"sentence2"}, .label = {"label"},
       .label_names = {"not_entailment", "entailment"}}};
  return kTasks;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kPairs = {{{"sentence1", "sentence2"},
                                                                                  {"premise", "hypothesis"},
                                                                                  {"question1", "question2"},
                                                                                  {"text1", "text2"},
                                                                                  {"text_a", "text_b"},
                                                                                  {"question", "sentence"},
                                                                                  {"question", "answer"},
                                                                                  {"query", "passage"}}};

bool contains(const Names& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_number(const std::string& text) {
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size();
}

class Chooser {
 public:
  Chooser(const ClassifyDataOptions& options, const GlueTask* task, const TableRow& first, bool needs_label)
      : options_(options), task_(task), first_(first), needs_label_(needs_label) {}

  Columns choose() {
    choose_label();
    choose_texts();
    const std::string pair = result_.pair.value_or("");
    if (result_.pair && result_.text == pair) {
      throw Error::usage("--text_column and --text_pair_column are both '{}'. Leave out --text_pair_column for single "
                         "texts.", pair);
    }
    if (result_.label && (*result_.label == result_.text || *result_.label == pair)) {
      throw Error::usage("the column '{}' is both a text and the label. Name another with --label_column.",
                         *result_.label);
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void fail(std::string_view what, std::string_view remedy) const {
    const std::string delimiter = first_.is_typed ? "" : delimiter_advice(*first_.columns);
    throw Error::data("{}: {}; its columns are: {}.{}", first_.place.text(), what, fmt::join(*first_.columns, ", "),
                      delimiter.empty() ? fmt::format(" {}", remedy) : delimiter + " Write it so.");
  }

  void require(std::string_view flag, const std::string& column) const {
    if (first_.has_column(column)) return;
    fail(fmt::format("there is no column '{}' (--{})", column, flag), "Name one of these.");
  }

  /// The first of a task's names that the data has.
  std::optional<std::string> task_column(const Names& names) const {
    for (const std::string& column : names) {
      if (first_.has_column(column)) return column;
    }
    return std::nullopt;
  }

  std::string required_task_column(const Names& names, std::string_view flag) const {
    if (auto column = task_column(names)) return *column;
    fail(fmt::format("--task {} needs a column '{}'", task_->name, fmt::join(names, "' or '")),
         fmt::format("Name the column to use with --{}, or leave out --task.", flag));
  }

  void note(std::string_view flag, const std::string& column) {
    result_.chosen.push_back(fmt::format("{} = {}", flag, column));
  }

  void choose_label() {
    if (options_.label_column) {
      if (needs_label_) require("label_column", *options_.label_column);
      if (first_.has_column(*options_.label_column)) result_.label = options_.label_column;
      return;
    }
    if (task_ != nullptr) {
      result_.label = needs_label_ ? required_task_column(task_->label, "label_column") : task_column(task_->label);
    } else {
      const bool both = first_.has_column("label") && first_.has_column("labels");
      if (both) fail("both label and labels could be the label", "Name one with --label_column.");
      result_.label = task_column({"label", "labels"});
      if (!result_.label && needs_label_) {
        fail("there is no column called label", "Name the column of the labels with --label_column.");
      }
    }
    if (result_.label) note("label_column", *result_.label);
  }

  void choose_texts() {
    if (options_.text_column) {
      require("text_column", *options_.text_column);
      result_.text = *options_.text_column;
      if (options_.text_pair_column) require("text_pair_column", *options_.text_pair_column);
      result_.pair = options_.text_pair_column;
      return;
    }
    if (options_.text_pair_column) {
      throw Error::usage("--text_pair_column {} needs --text_column, the column of the first text.",
                         *options_.text_pair_column);
    }
    if (task_ != nullptr) {
      result_.text = required_task_column(task_->first, "text_column");
      if (!task_->second.empty()) result_.pair = required_task_column(task_->second, "text_pair_column");
    } else {
      guess_texts();
    }
    note("text_column", result_.text);
    if (result_.pair) note("text_pair_column", *result_.pair);
  }

  void guess_texts() {
    const Names texts = text_columns();
    std::vector<std::pair<std::string_view, std::string_view>> pairs;
    for (const auto& pair : kPairs) {
      if (contains(texts, pair.first) && contains(texts, pair.second)) pairs.push_back(pair);
    }
    if (pairs.size() == 1 && texts.size() == 2) {
      result_.text = pairs[0].first;
      result_.pair = pairs[0].second;
    } else if (texts.size() == 1) {
      result_.text = texts[0];
    } else if (texts.empty()) {
      const Names nulls = null_columns();
      fail(fmt::format("no column holds a text{}", nulls.empty() ? "" : fmt::format(" ({}: null)", fmt::join(nulls, ", "))),
           nulls.empty() ? "Name the column to read with --text_column."
                         : "Give it a text, remove the row, or name the column to read with --text_column.");
    } else {
      fail(fmt::format("several columns could be the text ({})", fmt::join(texts, ", ")),
           "Name the one to read with --text_column, and for pairs the other with --text_pair_column.");
    }
  }

  Names null_columns() const {
    Names names;
    for (const std::string& column : *first_.columns) {
      if (first_.is_typed && is_null(first_.at(column)) && !first_.is_nested(column) && column != result_.label) {
        names.push_back(column);
      }
    }
    return names;
  }

  Names text_columns() const {
    Names names;
    for (const std::string& column : *first_.columns) {
      const auto* text = std::get_if<std::string>(&first_.at(column));
      const bool is_text = text != nullptr && (first_.is_typed || !is_number(*text));
      if (is_text && column != result_.label && column != "id" && column != "idx" && column != "guid") {
        names.push_back(column);
      }
    }
    return names;
  }

  const ClassifyDataOptions& options_;
  const GlueTask* task_;
  const TableRow& first_;
  bool needs_label_;
  Columns result_;
};

}  // namespace

std::string_view name(Problem problem) {
  switch (problem) {
    case Problem::SingleLabel: return "single_label_classification";
    case Problem::MultiLabel: return "multi_label_classification";
    case Problem::Regression: break;
  }
  return "regression";
}

Problem problem_from_name(std::string_view text) {
  for (const Problem problem : {Problem::SingleLabel, Problem::MultiLabel, Problem::Regression}) {
    if (name(problem) == text) return problem;
  }
  throw Error::internal("problem_type {}", text);
}

const GlueTask* find_glue_task(std::string_view name) {
  const auto found = std::find_if(tasks().begin(), tasks().end(), [&](const GlueTask& task) { return task.name == name; });
  return found == tasks().end() ? nullptr : &*found;
}

std::span<const GlueTask> glue_tasks() { return tasks(); }

Columns choose_columns(const ClassifyDataOptions& options, const GlueTask* task, const TableRow& first,
                       bool needs_label) {
  return Chooser(options, task, first, needs_label).choose();
}

}  // namespace lockstep::data
