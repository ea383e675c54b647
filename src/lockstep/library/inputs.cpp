#include "lockstep/library/inputs.h"

#include "lockstep/base/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace lockstep::library {
namespace {

constexpr const char* kIdsColumn = "input_ids";
constexpr const char* kTypesColumn = "token_type_ids";

/// "label", or "labels"; nothing where there is neither.
std::optional<std::string> label_column(const data::TableRow& first) {
  const bool one = first.has_column("label"), many = first.has_column("labels");
  if (one && many) {
    throw Error::data("{}: both label and labels could be the label. Remove one of the columns.", first.place.text());
  }
  if (!one && !many) return std::nullopt;
  return one ? "label" : "labels";
}

std::vector<int32_t> whole_numbers(const data::TableRow& row, const char* column) {
  const data::Cell& cell = row.at(column);
  const auto* list = std::get_if<data::ScalarList>(&cell);
  if (list == nullptr) {
    throw Error::data("{}: column \"{}\": {} is {}, not a list of integers. Give the row's tokens.", row.place.text(), column,
                      data::shown(cell), data::kind_words(cell));
  }
  std::vector<int32_t> numbers;
  for (const data::Scalar& item : *list) {
    const auto* number = std::get_if<int64_t>(&item);
    if (number == nullptr || *number < 0 || *number > std::numeric_limits<int32_t>::max()) {
      throw Error::data("{}: column \"{}\": {} holds something else than integers from 0 on.", row.place.text(), column,
                        data::shown(cell));
    }
    numbers.push_back(static_cast<int32_t>(*number));
  }
  return numbers;
}

/// A row that came with its tokens.
data::EncodedTableRow own_tokens(const data::TableRow& row) {
  data::EncodedTableRow result;
  result.row.ids = whole_numbers(row, kIdsColumn);
  result.row.type_ids = row.has_column(kTypesColumn) ? whole_numbers(row, kTypesColumn)
                                                     : std::vector<int32_t>(result.row.ids.size(), 0);
  if (result.row.type_ids.size() != result.row.ids.size()) {
    throw Error::data("{}: {} token_type_ids for {} input_ids. Give one for each.", row.place.text(), result.row.type_ids.size(),
                      result.row.ids.size());
  }
  if (row.has_column("attention_mask")) {
    const std::vector<int32_t> mask = whole_numbers(row, "attention_mask");
    const bool all_ones = std::all_of(mask.begin(), mask.end(), [](int32_t value) { return value == 1; });
    if (!all_ones || mask.size() != result.row.ids.size()) {
      throw Error::data("{}: the attention_mask is not 1 for each of the {} tokens. Rows are never padded: leave the padding "
                        "out.", row.place.text(), result.row.ids.size());
    }
  }
  return result;
}

void check_tokens(const data::LabelledRow& row, const data::RowPlace& place, const SequenceClassifier::Impl& model) {
  const auto length = static_cast<int64_t>(row.ids.size());
  if (length == 0) throw Error::data("{}: the row has no token. Remove it, or give it a text.", place.text());
  if (model.max_positions > 0 && length > model.max_positions) {
    throw Error::data("{}: the row has {} tokens, but the model of {} takes {}. Map with .truncation = true and .max_length = "
                      "{}.", place.text(), length, model.folder, model.max_positions, model.max_positions);
  }
  for (const int32_t id : row.ids) {
    if (id < model.vocab_size) continue;
    throw Error::data("{}: token {} is outside the model's vocabulary (vocab_size = {}). Use the tokenizer of {}.", place.text(), id,
                      model.vocab_size, model.folder);
  }
}

void put_problem(data::ClassifyDataOptions& options, const SequenceClassifier::Impl& model) {
  const std::string problem = wished_problem(model.options);
  if (!problem.empty()) options.problem_type = problem;
}

const data::GlueTask* glue_task(const Dataset& dataset) {
  const auto& tokens = DatasetAccess::of(dataset).tokens;
  return tokens && !tokens->task.empty() ? data::find_glue_task(tokens->task) : nullptr;
}

/// What the model, or the user for it, says of the classes.
data::ModelLabels labels_of(const SequenceClassifier::Impl& model) {
  const auto& names = model.labels.names.empty() ? model.options.id2label : model.labels.names;
  const int64_t num_labels = names.empty() ? model.options.num_labels.value_or(model.labels.num_labels) : std::ssize(names);
  return {names, num_labels, model.labels.problem_type};
}

/// The data's own tokenizer, or the model's: to show an example.
text::Tokenizer tokenizer_for(const SequenceClassifier::Impl& model, const Dataset& train, const Dataset& eval) {
  for (const Dataset* dataset : {&train, &eval}) {
    const auto& tokens = DatasetAccess::of(*dataset).tokens;
    if (tokens) return text::Tokenizer::from_folder(tokens->tokenizer->tokenizer.folder());
  }
  return text::Tokenizer::from_folder(model.folder);
}

data::ClassifySplit labelled_split(data::ReadSplit read, const recipes::ClassifyInputs& inputs, data::Unlabelled unlabelled) {
  data::set_labels(read, inputs.dataset.labels, unlabelled, inputs.tokenizer);
  return std::move(read.split);
}

}  // namespace

data::ReadSplit read_dataset(const Dataset& dataset, const std::string& name, const SequenceClassifier::Impl& model) {
  const Dataset::Impl& source = DatasetAccess::of(dataset);
  data::ReadSplit read;
  read.split.name = name;
  read.split.report.files = source.sources;
  if (source.rows.empty()) throw Error::data("{} has no rows ({}).", name, fmt::join(source.sources, ", "));
  const std::optional<std::string> label = label_column(source.rows.front());
  read.labels.name = label.value_or("label");
  bool is_typed = true;
  for (size_t i = 0; i < source.rows.size(); ++i) {
    const data::TableRow& row = source.rows[i];
    if (!source.tokens && !row.has_column(kIdsColumn)) {
      throw Error::usage("{}: {} is not tokenized. Use Dataset::map(tokenizer, ...), or give rows with input_ids.",
                         row.place.text(), name);
    }
    data::EncodedTableRow encoded = source.tokens ? source.tokens->rows[i] : own_tokens(row);
    check_tokens(encoded.row, row.place, model);
    data::add_row(std::move(encoded), read.split);
    ++read.split.report.num_rows;
    is_typed = is_typed && row.is_typed;
    read.labels.cells.push_back({label ? row.at(*label) : data::Cell(), row.place});
  }
  if (!is_typed) read.labels.type_texts();
  return read;
}

recipes::ClassifyInputs make_inputs(const SequenceClassifier::Impl& model, const Dataset& train, const Dataset& eval) {
  recipes::ClassifyInputs inputs{model.config, tokenizer_for(model, train, eval), {}};
  data::ClassifyDataOptions options;
  put_problem(options, model);
  const Dataset& first = train.empty() ? eval : train;
  const data::GlueTask* const task = glue_task(first);
  if (const auto& tokens = DatasetAccess::of(first).tokens) {
    inputs.dataset.columns = tokens->columns;
    inputs.dataset.task = tokens->task;
    inputs.dataset.max_length = tokens->max_length;
  } else {
    inputs.dataset.columns.text = kIdsColumn;
  }
  if (train.empty()) {
    std::optional<data::ReadSplit> read;
    if (!eval.empty()) read = read_dataset(eval, "eval_dataset", model);
    inputs.dataset.labels = data::labels_without_training(options, task, labels_of(model), read ? &read->labels : nullptr);
    fit_labels(inputs.dataset.labels, model.options, "label");
    if (read) inputs.dataset.validation.push_back(labelled_split(*std::move(read), inputs, data::Unlabelled::Refused));
  } else {
    data::ReadSplit read = read_dataset(train, "train_dataset", model);
    if (!label_column(DatasetAccess::of(train).rows.front())) {
      throw Error::data("train_dataset ({}) has no column called label; it has: {}. Use rename_column(..., \"label\").",
                        fmt::join(DatasetAccess::of(train).sources, ", "), fmt::join(train.column_names(), ", "));
    }
    inputs.dataset.columns.label = read.labels.name;
    inputs.dataset.labels = data::find_labels(read.labels, options, task, model.labels.names);
    fit_labels(inputs.dataset.labels, model.options, read.labels.name);
    inputs.dataset.train.push_back(labelled_split(std::move(read), inputs, data::Unlabelled::Refused));
    inputs.dataset.train.back().name = "train";  // as the command calls them, in fingerprints too
    if (!eval.empty()) {
      inputs.dataset.validation.push_back(make_split(eval, "eval_dataset", model, inputs, data::Unlabelled::Refused));
    }
  }
  if (!eval.empty()) inputs.dataset.validation.back().name = "validation";
  inputs.dataset.notes = inputs.dataset.labels.notes;
  std::visit([&](auto& of_family) { of_family.num_labels = inputs.dataset.labels.num_labels; }, inputs.config);
  return inputs;
}

data::ClassifySplit make_split(const Dataset& dataset, const std::string& name, const SequenceClassifier::Impl& model,
                               const recipes::ClassifyInputs& inputs, data::Unlabelled unlabelled) {
  return labelled_split(read_dataset(dataset, name, model), inputs, unlabelled);
}

}  // namespace lockstep::library
