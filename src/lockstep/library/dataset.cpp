#include "lockstep/library/dataset.h"

#include "lockstep/base/error.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/data/dataset_files.h"
#include "lockstep/library/dataset_impl.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <type_traits>

namespace lockstep {

static_assert(std::is_same_v<Value, data::Cell> && std::is_same_v<Scalar, data::Scalar>);

namespace {

using Names = std::vector<std::string>;
using SharedNames = std::shared_ptr<const Names>;

constexpr const char* kIds = "input_ids";
constexpr const char* kTypes = "token_type_ids";

Value list_of(const std::vector<int32_t>& ids) {
  std::vector<Scalar> list;
  list.reserve(ids.size());
  for (const int32_t id : ids) list.emplace_back(int64_t{id});
  return list;
}

Row row_at(const Dataset::Impl& dataset, size_t index) {
  const data::TableRow& source = dataset.rows[index];
  Row row;
  for (const std::string& name : *source.columns) row[name] = source.at(name);
  if (dataset.tokens) {
    row[kIds] = list_of(dataset.tokens->rows[index].row.ids);
    row[kTypes] = list_of(dataset.tokens->rows[index].row.type_ids);
  }
  return row;
}

/// `columns`: of the row before, shared where they are the same.
data::TableRow table_row(const Row& row, SharedNames& columns, data::RowPlace place, bool is_typed) {
  Names names;
  for (const auto& [name, value] : row) names.push_back(name);
  if (!columns || *columns != names) columns = std::make_shared<const Names>(std::move(names));
  data::TableRow result;
  result.columns = columns;
  for (const auto& [name, value] : row) result.cells.push_back(value);
  result.place = std::move(place);
  result.is_typed = is_typed;
  return result;
}

/// Rows that come one by one from memory, as a table.
class RowsFromMemory {
 public:
  explicit RowsFromMemory(const std::string& name) : file_(std::make_shared<const std::string>(name)) {
    impl_.sources = {name};
  }
  void add(const Row& row) {
    const auto number = static_cast<int64_t>(impl_.rows.size()) + 1;
    impl_.rows.push_back(table_row(row, columns_, {file_, number, /*in_array=*/true}, /*is_typed=*/true));
  }
  Dataset take() { return DatasetAccess::make(std::move(impl_)); }

 private:
  std::shared_ptr<const std::string> file_;
  SharedNames columns_;
  Dataset::Impl impl_;
};

/// Rows `kept` (ascending) of a data set, with their tokens.
Dataset rows_of_dataset(const Dataset::Impl& dataset, const std::vector<size_t>& kept) {
  Dataset::Impl result;
  result.sources = dataset.sources;
  result.rows.reserve(kept.size());
  for (const size_t index : kept) result.rows.push_back(dataset.rows[index]);
  if (dataset.tokens) {
    DatasetTokens& tokens = result.tokens.emplace();
    tokens.tokenizer = dataset.tokens->tokenizer;
    tokens.columns = dataset.tokens->columns;
    tokens.task = dataset.tokens->task;
    tokens.max_length = dataset.tokens->max_length;
    for (const size_t index : kept) tokens.rows.push_back(dataset.tokens->rows[index]);
  }
  return DatasetAccess::make(std::move(result));
}

/// The same rows with other columns: `change` may rename or (empty result) remove one.
Dataset with_columns(const Dataset::Impl& dataset, const std::function<std::string(const std::string&)>& change) {
  Dataset::Impl result = dataset;
  std::map<const Names*, SharedNames> changed;
  for (data::TableRow& row : result.rows) {
    const SharedNames before = row.columns;
    SharedNames& after = changed[before.get()];
    if (!after) {
      Names names;
      for (const std::string& name : *before) {
        if (std::string now = change(name); !now.empty()) names.push_back(std::move(now));
      }
      after = std::make_shared<const Names>(std::move(names));
    }
    std::vector<data::Cell> cells;
    for (size_t i = 0; i < row.cells.size() && i < before->size(); ++i) {
      if (!change((*before)[i]).empty()) cells.push_back(std::move(row.cells[i]));
    }
    row.columns = after;
    row.cells = std::move(cells);
  }
  return DatasetAccess::make(std::move(result));
}

const data::GlueTask* task_of(const std::string& name) {
  if (name.empty()) return nullptr;
  if (const data::GlueTask* task = data::find_glue_task(name)) return task;
  Names known;
  for (const data::GlueTask& task : data::glue_tasks()) known.emplace_back(task.name);
  throw Error::usage("task = '{}': must be one of {}.", name, fmt::join(known, ", "));
}

std::optional<int64_t> length_of(const TokenizeOptions& options, const text::Tokenizer& tokenizer, bool pairs) {
  if (!options.truncation) {
    if (!options.max_length) return std::nullopt;
    throw Error::usage("max_length = {} without truncation: set .truncation = true, or leave max_length out.",
                       *options.max_length);
  }
  const std::optional<int64_t> length = options.max_length ? options.max_length : tokenizer.model_max_length();
  const auto num_special = static_cast<int64_t>((pairs ? tokenizer.encode_pair("", "") : tokenizer.encode("")).ids.size());
  if (length && *length <= num_special) {
    throw Error::usage("max_length = {} leaves no room for text: {} tokens of a row are special ones.", *length, num_special);
  }
  return length;
}

DatasetTokens tokenize(const std::vector<data::TableRow>& rows, const Tokenizer& tokenizer, const TokenizeOptions& options) {
  DatasetTokens tokens;
  tokens.tokenizer = TokenizerAccess::of(tokenizer);
  tokens.task = options.task;
  const data::GlueTask* const task = task_of(options.task);
  if (rows.empty()) return tokens;
  data::ClassifyDataOptions columns;
  if (!options.text.empty()) columns.text_column = options.text;
  if (!options.text_pair.empty()) columns.text_pair_column = options.text_pair;
  tokens.columns = data::choose_columns(columns, task, rows.front(), /*needs_label=*/false);
  const text::Tokenizer& encoder = tokens.tokenizer->tokenizer;
  tokens.max_length = length_of(options, encoder, tokens.columns.pair.has_value());
  // The model's vocabulary is held against the ids by the Trainer, which knows it.
  const data::SplitFormat format{task, tokens.columns, tokens.max_length, std::numeric_limits<int64_t>::max()};
  tokens.rows.resize(rows.size());
  ThreadTeam team(threads_of_process());
  team.run(rows.size(), [&](size_t item, int) { tokens.rows[item] = data::encode_row(rows[item], format, encoder); });
  return tokens;
}

Dataset read_files(const std::vector<std::filesystem::path>& files) {
  Dataset::Impl impl;
  for (const auto& file : files) {
    impl.sources.push_back(file.string());
    data::TableReader reader(file);
    while (auto row = reader.next()) impl.rows.push_back(*std::move(row));
  }
  return DatasetAccess::make(std::move(impl));
}

}  // namespace

Dataset::Dataset() : Dataset(std::make_shared<const Impl>()) {}
Dataset::~Dataset() = default;
Dataset::Dataset(const Dataset&) = default;
Dataset& Dataset::operator=(const Dataset&) = default;
Dataset::Dataset(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Dataset Dataset::from_rows(const std::vector<Row>& rows, const std::string& name) {
  RowsFromMemory memory(name);
  for (const Row& row : rows) memory.add(row);
  return memory.take();
}

Dataset Dataset::from_generator(const std::function<std::optional<Row>()>& next, const std::string& name) {
  if (!next) throw Error::usage("from_generator: there is no function to call.");
  RowsFromMemory memory(name);
  while (const std::optional<Row> row = next()) memory.add(*row);
  return memory.take();
}

size_t Dataset::num_rows() const { return impl_->rows.size(); }

std::vector<std::string> Dataset::column_names() const {
  if (empty()) return {};
  Names names = *impl_->rows.front().columns;
  if (impl_->tokens) names.insert(names.end(), {kIds, kTypes});
  return names;
}

Row Dataset::operator[](size_t index) const {
  if (index < num_rows()) return row_at(*impl_, index);
  throw Error::usage("row {} of {}: there are only {} rows, counted from 0.", index, fmt::join(impl_->sources, ", "),
                     num_rows());
}

Dataset Dataset::map(const Tokenizer& tokenizer, const TokenizeOptions& options) const {
  Impl result;
  result.sources = impl_->sources;
  result.tokens = tokenize(impl_->rows, tokenizer, options);
  result.rows = impl_->rows;
  return DatasetAccess::make(std::move(result));
}

Dataset Dataset::map(const std::function<Row(const Row&)>& function) const {
  if (!function) throw Error::usage("map: there is no function to call.");
  Impl result;
  result.sources = impl_->sources;
  SharedNames columns;
  for (size_t i = 0; i < num_rows(); ++i) {
    const data::TableRow& source = impl_->rows[i];
    result.rows.push_back(table_row(function(row_at(*impl_, i)), columns, source.place, source.is_typed));
  }
  return DatasetAccess::make(std::move(result));
}

Dataset Dataset::filter(const std::function<bool(const Row&)>& keep) const {
  if (!keep) throw Error::usage("filter: there is no function to call.");
  std::vector<size_t> kept;
  for (size_t i = 0; i < num_rows(); ++i) {
    if (keep(row_at(*impl_, i))) kept.push_back(i);
  }
  return rows_of_dataset(*impl_, kept);
}

Dataset Dataset::take(size_t count) const {
  std::vector<size_t> kept(std::min(count, num_rows()));
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = i;
  return rows_of_dataset(*impl_, kept);
}

Dataset Dataset::rename_column(const std::string& from, const std::string& to) const {
  const Names names = column_names();
  const auto has = [&](const std::string& name) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (to.empty()) throw Error::usage("rename_column('{}', ''): the new name is empty.", from);
  if (!empty() && !has(from)) {
    throw Error::usage("rename_column('{}', '{}'): there is no such column; there are: {}.", from, to, fmt::join(names, ", "));
  }
  if (from != to && has(to)) throw Error::usage("rename_column('{}', '{}'): there is a column '{}' already.", from, to, to);
  return with_columns(*impl_, [&](const std::string& name) { return name == from ? to : name; });
}

Dataset Dataset::remove_columns(const std::vector<std::string>& names) const {
  const Names there = column_names();
  for (const std::string& name : names) {
    if (empty() || std::find(there.begin(), there.end(), name) != there.end()) continue;
    throw Error::usage("remove_columns: there is no column '{}'; there are: {}.", name, fmt::join(there, ", "));
  }
  return with_columns(*impl_, [&](const std::string& name) {
    return std::find(names.begin(), names.end(), name) == names.end() ? name : std::string();
  });
}

const Dataset& DatasetDict::operator[](const std::string& split) const {
  const auto found = splits_.find(split);
  if (found != splits_.end()) return found->second;
  throw Error::usage("there is no split '{}'; there are: {}.", split, fmt::join(names(), ", "));
}

std::vector<std::string> DatasetDict::names() const {
  Names names;
  for (const auto& [name, split] : splits_) names.push_back(name);
  return names;
}

DatasetDict DatasetDict::map(const Tokenizer& tokenizer, const TokenizeOptions& options) const {
  std::map<std::string, Dataset> splits;
  for (const auto& [name, split] : splits_) splits.emplace(name, split.map(tokenizer, options));
  return DatasetDict(std::move(splits));
}

DatasetDict DatasetDict::map(const std::function<Row(const Row&)>& function) const {
  std::map<std::string, Dataset> splits;
  for (const auto& [name, split] : splits_) splits.emplace(name, split.map(function));
  return DatasetDict(std::move(splits));
}

DatasetDict DatasetDict::rename_column(const std::string& from, const std::string& to) const {
  std::map<std::string, Dataset> splits;
  for (const auto& [name, split] : splits_) splits.emplace(name, split.rename_column(from, to));
  return DatasetDict(std::move(splits));
}

DatasetDict load_dataset(const std::string& path) {
  std::map<std::string, Dataset> splits;
  for (const char* kind : {"train", "validation", "test"}) {
    bool in_parts = false;
    for (const char* part : {"_matched", "_mismatched"}) {
      const std::string name = std::string(kind) + part;
      if (const auto files = data::table_files(path, name); !files.empty()) {
        splits.emplace(name, read_files(files));
        in_parts = true;
      }
    }
    if (in_parts) continue;
    if (const auto files = data::table_files(path, kind); !files.empty()) splits.emplace(kind, read_files(files));
  }
  if (!splits.empty()) return DatasetDict(std::move(splits));
  throw Error::data("load_dataset({}): none of its files belongs to a split (found: {}). Call one train.jsonl, .csv or .tsv, or "
                    "give files by split: load_dataset({{{{\"train\", FILE}}}}).", path, data::table_files_there(path));
}

DatasetDict load_dataset(const std::map<std::string, std::string>& data_files) {
  std::map<std::string, Dataset> splits;
  for (const auto& [split, file] : data_files) splits.emplace(split, read_files({data::table_file(file, "load_dataset:")}));
  return DatasetDict(std::move(splits));
}

}  // namespace lockstep
