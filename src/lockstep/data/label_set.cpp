#include "lockstep/data/label_set.h"

#include "lockstep/base/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <type_traits>
#include <utility>

namespace lockstep::data {
namespace {

template <class Number>
std::optional<Number> whole_text(const std::string& text) {
  Number value{};
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const auto [end, problem] = std::from_chars(begin, text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

std::optional<bool> boolean_text(const std::string& text) {
  if (text == "True" || text == "true" || text == "TRUE") return true;
  if (text == "False" || text == "false" || text == "FALSE") return false;
  return std::nullopt;
}

/// Turns all texts into `parse`'s values if it takes every one of them.
template <class Parse>
bool retype(std::vector<LabelCell>& cells, Parse parse) {
  for (const LabelCell& cell : cells) {
    const auto* text = std::get_if<std::string>(&cell.value);
    if (text != nullptr && !parse(*text)) return false;
  }
  for (LabelCell& cell : cells) {
    if (const auto* text = std::get_if<std::string>(&cell.value)) cell.value = *parse(*text);
  }
  return true;
}

/// The first text that is no whole number, where others are.
std::optional<size_t> first_among_whole(const std::vector<LabelCell>& cells) {
  std::optional<size_t> first;
  bool others_are = false;
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto* text = std::get_if<std::string>(&cells[i].value);
    if (text == nullptr) continue;
    const bool whole = whole_text<int64_t>(*text).has_value();
    others_are |= whole;
    if (!whole && !first) first = i;
  }
  return others_are ? first : std::nullopt;
}

bool is_whole(double value) { return std::isfinite(value) && std::floor(value) == value && std::fabs(value) < 1e15; }

/// The name of a class as Python's str() gives it; nothing for what is no class.
std::optional<std::string> class_name(const Cell& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<int64_t>(&value)) return std::to_string(*number);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "True" : "False";
  const auto* real = std::get_if<double>(&value);
  if (real != nullptr && is_whole(*real)) return fmt::format("{:.0f}", *real);
  return std::nullopt;
}

Cell to_cell(const Scalar& scalar) {
  return std::visit([](const auto& held) { return Cell(held); }, scalar);
}

std::optional<double> as_number(const Cell& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return static_cast<double>(*number);
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? 1 : 0;
  return std::nullopt;
}

[[noreturn]] void fail(const LabelCell& label, std::string_view column, std::string_view what,
                       std::string_view remedy) {
  throw Error::data("{}: column \"{}\": {}. {}", label.place.text(), column, what, remedy);
}

constexpr std::string_view kNoClass = "-1";

bool is_missing(const LabelCell& label, Problem problem) {
  if (is_null(label.value)) return true;
  if (problem == Problem::Regression) return false;
  const auto* list = std::get_if<ScalarList>(&label.value);
  if (list == nullptr) return class_name(label.value) == kNoClass;
  return std::any_of(list->begin(), list->end(), [](const Scalar& item) { return class_name(to_cell(item)) == kNoClass; });
}

[[noreturn]] void fail_missing(const LabelCell& label, std::string_view column, const std::string& count) {
  fail(label, column, fmt::format("{}{}", is_null(label.value) ? label.null_words : "the label -1 means none", count),
       "Add it, or remove the row; rows without labels, such as those of GLUE's test splits, can only be predicted for "
       "(--test_file).");
}

// ---- what kind of problem ----

/// The first label that says what they are.
const LabelCell& first_label(const LabelColumn& column) {
  const auto found = std::find_if(column.cells.begin(), column.cells.end(),
                                  [](const LabelCell& cell) { return !is_null(cell.value); });
  if (found != column.cells.end()) return *found;
  throw Error::data("the column \"{}\" of the training rows holds no label{}. Name the column of the labels with "
                    "--label_column.", column.name,
                    column.cells.empty() ? "" : fmt::format(" (first row: {}: {})", column.cells.front().place.text(),
                                                            column.cells.front().null_words));
}

/// As a JSON file gives them, or one that was typed: a column of 1 and 2.5 is one of fractions.
Problem problem_of(const LabelColumn& column) {
  if (std::holds_alternative<ScalarList>(first_label(column).value)) return Problem::MultiLabel;
  const bool has_fraction = std::any_of(column.cells.begin(), column.cells.end(), [](const LabelCell& cell) {
    return std::holds_alternative<double>(cell.value);
  });
  return has_fraction ? Problem::Regression : Problem::SingleLabel;
}

/// A single fraction turns whole numbers, which would be classes, into targets: whoever did not mean it must see where it is.
void note_fraction(LabelSet& set, const LabelColumn& column) {
  const auto is_whole_number = [](const LabelCell& cell) { return std::holds_alternative<int64_t>(cell.value); };
  const auto is_real = [](const LabelCell& cell) { return std::holds_alternative<double>(cell.value); };
  std::optional<size_t> first = column.first_fraction;
  if (!first && std::any_of(column.cells.begin(), column.cells.end(), is_whole_number)) {
    first = static_cast<size_t>(std::find_if(column.cells.begin(), column.cells.end(), is_real) - column.cells.begin());
  }
  if (!first) return;
  const LabelCell& cell = column.cells[*first];
  std::string shown_value = fmt::format("{}", as_number(cell.value).value_or(0));
  if (shown_value.find_first_of(".e") == std::string::npos) shown_value += ".0";
  set.notes.push_back(fmt::format("regression, because not all labels are whole numbers: that of {} is {}. For classes correct it, "
                                  "or give --problem_type single_label_classification", cell.place.text(), shown_value));
}

/// Lists that say 0 or 1 for each class. Names of classes never repeat within a row.
bool holds_indicators(const LabelColumn& column) {
  std::optional<size_t> size;
  bool repeats = false;
  bool is_number_like = false;
  for (const LabelCell& cell : column.cells) {
    const auto* list = std::get_if<ScalarList>(&cell.value);
    if (list == nullptr) return false;
    if (size && *size != list->size()) return false;
    size = list->size();
    std::set<double> seen;
    for (const Scalar& item : *list) {
      const auto number = as_number(to_cell(item));
      if (!number || (*number != 0 && *number != 1)) return false;
      repeats = !seen.insert(*number).second || repeats;
      is_number_like = is_number_like || !std::holds_alternative<int64_t>(item);
    }
  }
  return size.value_or(0) > 1 && (repeats || is_number_like);
}

// ---- which classes ----

/// How a label of a class is written: no two kinds of it name the same class.
std::string_view writing_of(const Cell& value) {
  if (std::holds_alternative<std::string>(value)) return "text";
  return std::holds_alternative<bool>(value) ? "boolean" : "number";
}

class ClassFinder {
 public:
  explicit ClassFinder(std::string_view column) : column_(column) {}

  void add(const LabelCell& label, const Cell& value) {
    auto name = class_name(value);
    if (!name) {
      fail(label, column_, fmt::format("{} is no class", shown(value)),
           "Labels of classes are texts or whole numbers; for numbers to come close to, use --problem_type regression.");
    }
    const std::string_view writing = writing_of(value);
    if (!first_) {
      first_ = &label;
      writing_ = writing;
    } else if (writing != writing_) {
      fail(label, column_, fmt::format("{} is {}, but the label of {} is {}", shown(value), kind_words(value),
                                       first_->place.text(), shown(first_->value)),
           "Write all labels in the same way.");
    }
    if (const auto number = as_number(value)) numbers_[*name] = *number;
    names_.insert(*std::move(name));
  }

  std::vector<std::string> in_order() const {
    std::vector<std::string> names(names_.begin(), names_.end());
    if (writing_ != "text") {
      std::stable_sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
        return numbers_.at(a) < numbers_.at(b);
      });
    }
    return names;
  }

 private:
  std::string_view column_;
  const LabelCell* first_ = nullptr;
  std::string_view writing_;
  std::set<std::string> names_;
  std::map<std::string, double> numbers_;
};

std::string known_classes(const LabelSet& set);

/// A head is trained on class by class, whatever its classes were called: who did not mean it must see which becomes which.
void note_other_names(LabelSet& set, std::span<const std::string> model_names) {
  if (model_names.empty() || are_placeholders(model_names)) return;
  LabelSet before;
  before.set_names({model_names.begin(), model_names.end()});
  if (before.num_labels != set.num_labels) {
    set.notes.push_back(fmt::format("the model was trained on {} other classes ({}); these are {}", before.num_labels,
                                    known_classes(before), set.num_labels));
    return;
  }
  constexpr size_t kMost = 10;
  std::vector<std::string> pairs;
  for (size_t i = 0; i < std::min(kMost, set.names().size()); ++i) {
    pairs.push_back(fmt::format("{} was {}", set.names()[i], model_names[i]));
  }
  if (set.names().size() > kMost) pairs.push_back(fmt::format("and {} more", set.names().size() - kMost));
  set.notes.push_back(fmt::format("the model was trained on classes of other names; its head goes on from them in this order: {}",
                                  fmt::join(pairs, ", ")));
}

/// The model's order, if its names are the same ones.
void order_as_model(LabelSet& set, std::span<const std::string> model_names) {
  std::vector<std::string> ours = set.names();
  std::vector<std::string> theirs(model_names.begin(), model_names.end());
  std::sort(ours.begin(), ours.end());
  std::sort(theirs.begin(), theirs.end());
  if (ours != theirs) return note_other_names(set, model_names);
  if (std::equal(set.names().begin(), set.names().end(), model_names.begin())) return;
  set.set_names({model_names.begin(), model_names.end()});
  set.notes.push_back("the classes have the order of the model's id2label");
}

void add_classes(ClassFinder& finder, const LabelCell& label) {
  if (const auto* list = std::get_if<ScalarList>(&label.value)) {
    for (const Scalar& item : *list) finder.add(label, to_cell(item));
  } else {
    finder.add(label, label.value);
  }
}

void set_classes(LabelSet& set, const LabelColumn& column, std::span<const std::string> model_names) {
  ClassFinder finder(column.name);
  for (const LabelCell& label : column.cells) {
    const auto* list = std::get_if<ScalarList>(&label.value);
    if ((list != nullptr) != (set.problem == Problem::MultiLabel)) {
      fail(label, column.name, fmt::format("{} is {}, but the problem is {}", shown(label.value),
                                           kind_words(label.value), name(set.problem)),
           "Write all labels in the same way, or say what they are with --problem_type.");
    }
    add_classes(finder, label);
  }
  set.set_names(finder.in_order());
  if (set.num_labels < 1) {
    throw Error::data("no training row has any class in the column \"{}\". Check --label_column.", column.name);
  }
  if (set.num_labels < 2 && set.problem == Problem::SingleLabel) {
    throw Error::data("the training rows have a single label ({}) in the column \"{}\". A classifier needs at least two; "
                      "check --label_column.", fmt::join(set.names(), ""), column.name);
  }
  order_as_model(set, model_names);
}

void set_indicators(LabelSet& set, const LabelColumn& column, std::span<const std::string> model_names) {
  set.is_indicator = true;
  set.num_labels = static_cast<int64_t>(std::get<ScalarList>(column.cells.front().value).size());
  std::vector<std::string> names(model_names.begin(), model_names.end());
  if (static_cast<int64_t>(names.size()) != set.num_labels) {
    names.clear();
    for (int64_t i = 0; i < set.num_labels; ++i) names.push_back(std::to_string(i));
  }
  set.set_names(std::move(names));
  set.notes.push_back(fmt::format("each label is a list of {} zeros and ones, one per class", set.num_labels));
}

void set_targets(LabelSet& set, const LabelColumn& column) {
  const auto* list = std::get_if<ScalarList>(&first_label(column).value);
  set.num_labels = list == nullptr ? 1 : static_cast<int64_t>(list->size());
  if (set.num_labels < 1) fail(column.cells.front(), column.name, "an empty list", "Give at least one number.");
  for (const LabelCell& label : column.cells) to_numbers(label, set, column.name, Unlabelled::Refused);
}

std::vector<float> targets(const LabelCell& label, const LabelSet& set, std::string_view column) {
  std::vector<float> numbers;
  const auto add = [&](const Cell& value) {
    const auto number = as_number(value);
    const auto narrow = static_cast<float>(number.value_or(NAN));
    if (std::isfinite(number.value_or(NAN)) && !std::isfinite(narrow)) {
      fail(label, column, fmt::format("{} is beyond the range of float32, in which losses are computed", shown(value)),
           "Scale the labels, or correct this one.");
    }
    if (!std::isfinite(narrow)) {
      fail(label, column, fmt::format("{} is not a finite number", shown(value)),
           "Regression needs numbers; for classes use --problem_type single_label_classification.");
    }
    numbers.push_back(narrow);
  };
  if (const auto* list = std::get_if<ScalarList>(&label.value)) {
    for (const Scalar& item : *list) add(to_cell(item));
  } else {
    add(label.value);
  }
  if (static_cast<int64_t>(numbers.size()) != set.num_labels) {
    fail(label, column, fmt::format("{} targets where the first row has {}", numbers.size(), set.num_labels),
         "Give every row the same number of targets.");
  }
  return numbers;
}

std::string known_classes(const LabelSet& set) {
  constexpr size_t kMost = 10;
  std::vector<std::string> names = set.names();
  if (names.size() > kMost) {
    const size_t rest = names.size() - kMost;
    names.resize(kMost);
    names.push_back(fmt::format("and {} more", rest));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::optional<int64_t> class_index(const std::string& name, const LabelSet& set) {
  if (const auto found = set.find(name)) return found;
  const auto index = whole_text<uint64_t>(name);
  return index && *index < set.numbered.size() ? set.find(set.numbered[*index]) : std::nullopt;
}

int64_t class_of(const LabelCell& label, const Cell& value, const LabelSet& set, std::string_view column) {
  if (const auto name = class_name(value)) {
    if (const auto found = class_index(*name, set)) return *found;
  }
  fail(label, column, fmt::format("the label {} is none of the {} classes ({})", shown(value), set.names().size(),
                                  known_classes(set)),
       "Correct the label, or train on rows that have it too.");
}

std::vector<float> several_classes(const LabelCell& label, const LabelSet& set, std::string_view column) {
  const auto* list = std::get_if<ScalarList>(&label.value);
  if (list == nullptr) {
    fail(label, column, fmt::format("{} is {}, not a list of classes", shown(label.value), kind_words(label.value)),
         "Write [] for none and [\"a\"] for one.");
  }
  std::vector<float> numbers(static_cast<size_t>(set.num_labels), 0);
  if (!set.is_indicator) {
    for (const Scalar& item : *list) numbers[static_cast<size_t>(class_of(label, to_cell(item), set, column))] = 1;
    return numbers;
  }
  if (list->size() != numbers.size()) {
    fail(label, column, fmt::format("a list of {} where the training rows have {}", list->size(), numbers.size()),
         "Give one 0 or 1 per class.");
  }
  for (size_t i = 0; i < list->size(); ++i) {
    const auto number = as_number(to_cell((*list)[i]));
    if (!number || (*number != 0 && *number != 1)) {
      fail(label, column, fmt::format("{} holds a value that is neither 0 nor 1", shown(label.value)),
           "Give one 0 or 1 per class.");
    }
    numbers[i] = static_cast<float>(*number);
  }
  return numbers;
}

/// "LABEL_0", "LABEL_1": what transformers writes when nobody named the classes.
std::vector<std::string> placeholder_names(int64_t num_labels) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < num_labels; ++i) names.push_back(fmt::format("LABEL_{}", i));
  return names;
}

/// Of the rows that have one.
std::vector<std::string> classes_of_rows(const LabelColumn& rows, Problem problem) {
  ClassFinder finder(rows.name);
  for (const LabelCell& label : rows.cells) {
    if (!is_missing(label, problem)) add_classes(finder, label);
  }
  return finder.in_order();
}

/// The rows' names for classes that the model does not name, in the order that a training run would have given them.
void name_as_rows(LabelSet& set, const LabelColumn& rows) {
  std::vector<std::string> found = classes_of_rows(rows, set.problem);
  const bool all_known = std::all_of(found.begin(), found.end(), [&](const std::string& name) { return class_index(name, set); });
  if (all_known) return;
  if (std::ssize(found) != set.num_labels) {
    throw Error::data("the rows have {} classes ({}) in the column \"{}\", and the model has {} that its config.json does not "
                      "name, so nobody can tell which is which. Name them in its id2label.",
                      found.size(), fmt::join(found, ", "), rows.name, set.num_labels);
  }
  std::string mapping;
  for (size_t i = 0; i < found.size(); ++i) mapping += fmt::format("{}{} = {}", i == 0 ? "" : ", ", i, found[i]);
  set.notes.push_back(fmt::format("the model's config.json does not name its classes; taken as a training run orders those of "
                                  "the rows: {}", mapping));
  set.set_names(std::move(found));
  set.numbered.clear();
}

}  // namespace

bool are_placeholders(std::span<const std::string> names) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != fmt::format("LABEL_{}", i)) return false;
  }
  return true;
}

void LabelColumn::type_texts() {
  for (LabelCell& cell : cells) {
    const auto* text = std::get_if<std::string>(&cell.value);
    if (text != nullptr && text->empty()) cell.value = {};
  }
  const std::optional<size_t> fraction = first_among_whole(cells);
  if (retype(cells, whole_text<int64_t>)) return;
  if (retype(cells, whole_text<double>)) {
    first_fraction = fraction;
  } else {
    retype(cells, boolean_text);
  }
}

void LabelSet::set_names(std::vector<std::string> names) {
  names_ = std::move(names);
  num_labels = static_cast<int64_t>(names_.size());
  index_.clear();
  for (size_t i = 0; i < names_.size(); ++i) index_[names_[i]] = static_cast<int64_t>(i);
}

std::optional<int64_t> LabelSet::find(std::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

void require_labels(const LabelColumn& column, Problem problem) {
  const auto missing = [&](const LabelCell& label) { return is_missing(label, problem); };
  const auto first = std::find_if(column.cells.begin(), column.cells.end(), missing);
  if (first == column.cells.end()) return;
  fail_missing(*first, column.name, fmt::format(" (rows without a label: {} of {})",
                                                std::count_if(first, column.cells.end(), missing), column.cells.size()));
}

namespace {

bool looks_like_list(const LabelCell& label) {
  if (is_null(label.value)) return true;
  const auto* text = std::get_if<std::string>(&label.value);
  return text != nullptr && text->starts_with('[') && text->ends_with(']');
}

/// CSV has no lists: each such text would become a class of its own. Nobody who names the problem is asked.
void refuse_list_texts(const LabelColumn& column, const ClassifyDataOptions& options) {
  if (options.problem_type == "single_label_classification") return;
  if (!std::all_of(column.cells.begin(), column.cells.end(), looks_like_list)) return;
  const LabelCell& first = first_label(column);
  if (!std::holds_alternative<std::string>(first.value)) return;
  fail(first, column.name, fmt::format("{} is a text that looks like a list", shown(first.value)),
       "For several classes at once, or several targets, write the rows as JSON lines, where [\"a\", \"b\"] and [0, 1] are lists (CSV and "
       "TSV have none); to take each text as a class of its own, give --problem_type single_label_classification.");
}

}  // namespace

LabelSet find_labels(const LabelColumn& training, const ClassifyDataOptions& options, const GlueTask* task,
                     std::span<const std::string> model_names) {
  LabelSet set;
  if (task != nullptr) {
    set.problem = task->problem();
  } else {
    refuse_list_texts(training, options);
    set.problem = options.problem_type ? problem_from_name(*options.problem_type) : problem_of(training);
  }
  require_labels(training, set.problem);
  if (set.problem == Problem::Regression) {
    set_targets(set, training);
    if (task == nullptr && !options.problem_type) note_fraction(set, training);
  } else if (set.problem == Problem::MultiLabel && holds_indicators(training)) {
    set_indicators(set, training, model_names);
  } else if (task != nullptr) {
    set.set_names(task->label_names);
    set.numbered = task->label_names;
    order_as_model(set, model_names);
    for (const LabelCell& label : training.cells) to_numbers(label, set, training.name, Unlabelled::Refused);
  } else {
    set_classes(set, training, model_names);
  }
  return set;
}

LabelSet labels_of_model(const ClassifyDataOptions& options, const GlueTask* task,
                         std::span<const std::string> model_names, std::string_view model_problem) {
  LabelSet set;
  if (task != nullptr) {
    set.problem = task->problem();
  } else if (options.problem_type) {
    set.problem = problem_from_name(*options.problem_type);
  } else if (!model_problem.empty()) {
    set.problem = problem_from_name(model_problem);
  } else {
    set.problem = model_names.size() == 1 ? Problem::Regression : Problem::SingleLabel;
  }
  if (model_names.empty()) {
    throw Error::data("there are no training rows, and the model's config.json names no labels (id2label). Give a model "
                      "that was trained to classify, or training rows with --dataset_name or --train_file.");
  }
  if (set.problem == Problem::Regression) {
    set.num_labels = static_cast<int64_t>(model_names.size());
    return set;
  }
  set.set_names({model_names.begin(), model_names.end()});
  set.numbered = set.names();
  if (task == nullptr) return set;
  if (set.names().size() != task->label_names.size()) {
    throw Error::data("the model has {} classes ({}), but --task {} has {} ({}). Give a model that was trained on this task.",
                      set.names().size(), known_classes(set), task->name, task->label_names.size(),
                      fmt::join(task->label_names, ", "));
  }
  set.numbered = task->label_names;
  const bool knows_names = std::all_of(task->label_names.begin(), task->label_names.end(),
                                       [&](const std::string& label) { return set.find(label).has_value(); });
  if (!knows_names) set.set_names(task->label_names);
  return set;
}

LabelSet labels_without_training(const ClassifyDataOptions& options, const GlueTask* task, const ModelLabels& model,
                                 const LabelColumn* rows) {
  const bool is_named = !are_placeholders(model.names);
  const std::vector<std::string> placeholders = placeholder_names(model.num_labels);
  LabelSet set = labels_of_model(options, task, is_named ? model.names : placeholders, model.problem);
  if (rows == nullptr || set.problem == Problem::Regression) return set;
  set.is_indicator = set.problem == Problem::MultiLabel && holds_indicators(*rows);
  if (!is_named && task == nullptr && !set.is_indicator) name_as_rows(set, *rows);
  return set;
}

std::vector<float> to_numbers(const LabelCell& label, const LabelSet& set, std::string_view column,
                              Unlabelled unlabelled) {
  if (is_missing(label, set.problem)) {
    if (unlabelled == Unlabelled::Allowed) return {};
    fail_missing(label, column, "");
  }
  switch (set.problem) {
    case Problem::Regression: return targets(label, set, column);
    case Problem::MultiLabel: return several_classes(label, set, column);
    case Problem::SingleLabel: break;
  }
  return {static_cast<float>(class_of(label, label.value, set, column))};
}

}  // namespace lockstep::data
