#include "lockstep/data/classify_split.h"

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/data/row_preview.h"
#include "lockstep/text/tokenizer.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <span>
#include <utility>

namespace lockstep::data {
namespace {

constexpr size_t kTableRowsAtOnce = 1024;      // enough to keep a team busy, little to hold in memory
constexpr size_t kExampleCharacters = 300;  // at each end of the example
constexpr size_t kTokenCharacters = 40;

bool is_tsv(const std::filesystem::path& path) {
  const auto format = text_table_format(path);
  return format && format->quoting == Quoting::None;
}

/// The columns of a file without a header. Only GLUE's own cola/train.tsv and dev.tsv are known to lack one: their second
/// cell is the label, where a header would have a name.
std::optional<std::vector<std::string>> known_columns(const std::filesystem::path& path, const GlueTask* task) {
  if (task == nullptr || task->headerless.empty()) return std::nullopt;
  const auto cells = first_line_cells(path);
  const bool is_row = cells.size() == task->headerless.size() && (cells[1] == "0" || cells[1] == "1");
  return is_row ? std::optional(task->headerless) : std::nullopt;
}

/// All rows of several files, one after the other.
class TableSource {
 public:
  TableSource(const SplitSource& source, const GlueTask* task) : files_(source.files), task_(task) {}

  std::optional<TableRow> next() {
    while (true) {
      if (!reader_) {
        if (next_file_ == files_.size()) return std::nullopt;
        const auto& file = files_[next_file_++];
        reader_.emplace(file, known_columns(file, task_));
        is_tsv_ = is_tsv(file);
      }
      if (auto row = reader_->next()) return row;
      reader_.reset();
    }
  }

  /// Of the file that the last row came from.
  bool is_tsv_file() const { return is_tsv_; }

 private:
  std::vector<std::filesystem::path> files_;
  const GlueTask* task_;
  size_t next_file_ = 0;
  bool is_tsv_ = false;
  std::optional<TableReader> reader_;
};

/// Rows read together; a fault of the reader behind them waits until they are through, so that the first faulty row is the
/// one reported.
struct TableBatch {
  std::vector<TableRow> rows;
  std::exception_ptr fault;
  bool is_last = false;
};

class BatchReader {
 public:
  BatchReader(const SplitSource& source, const SplitFormat& format, SplitReport& report)
      : rows_(source, format.task), source_(source), format_(format), report_(report) {}

  TableBatch next() {
    TableBatch batch;
    try {
      while (batch.rows.size() < kTableRowsAtOnce && !batch.is_last) take_row(batch);
    } catch (const Error&) {
      batch.fault = std::current_exception();
    }
    return batch;
  }

 private:
  void take_row(TableBatch& batch) {
    auto row = rows_.next();
    if (!row) {
      batch.is_last = true;
    } else if (is_incomplete(*row)) {
      ++report_.num_incomplete;
    } else if (source_.max_rows && report_.num_rows == *source_.max_rows) {
      ++report_.num_left_out;
    } else {
      ++report_.num_rows;
      if (row->repeats_a_key && report_.num_repeated_keys++ == 0) report_.first_repeated_key = row->place.text();
      batch.rows.push_back(*std::move(row));
    }
  }

  /// GLUE's own TSV files (QQP) have lines that were cut in two; Hugging Face leaves them out as well.
  bool is_incomplete(const TableRow& row) const {
    if (format_.task == nullptr || !rows_.is_tsv_file() || row.cells.size() == row.columns->size()) return false;
    const Columns& columns = format_.columns;
    return is_null(row.at(columns.text)) || (columns.pair && is_null(row.at(*columns.pair))) ||
           (columns.label && row.has_column(*columns.label) && is_null(row.at(*columns.label)));
  }

  TableSource rows_;
  const SplitSource& source_;
  const SplitFormat& format_;
  SplitReport& report_;
};

std::string text_of(const TableRow& row, const std::string& column) {
  const Cell& cell = row.at(column);
  if (const auto* text = std::get_if<std::string>(&cell)) return *text;
  if (!row.has_column(column)) {
    throw Error::data("{}: there is no column \"{}\"; this row has: {}. Add it, or remove the row.", row.place.text(),
                      column, fmt::join(*row.columns, ", "));
  }
  if (!is_null(cell)) {
    throw Error::data("{}: column \"{}\": {} is {}, not a text. Write it in quotes, or name another column with "
                      "--text_column.", row.place.text(), column, shown(cell), kind_words(cell));
  }
  if (row.is_nested(column)) {
    throw Error::data("{}: column \"{}\": an object or a list of lists, not a text. Write it in quotes, or name another "
                      "column with --text_column.", row.place.text(), column);
  }
  if (row.is_typed) {
    throw Error::data("{}: column \"{}\": the value is null, not a text. Give it a text, or remove the row.",
                      row.place.text(), column);
  }
  const bool ends_early = row.cells.size() < row.columns->size();
  throw Error::data("{}: column \"{}\": there is no text{}. Add it, or remove the row.", row.place.text(), column,
                    ends_early ? fmt::format(" (the line has {} cells, the file {} columns)", row.cells.size(),
                                             row.columns->size())
                               : "");
}

/// What to say of the row if its label turns out to be null.
std::string_view words_of_no_label(const TableRow& row, const std::string& column) {
  if (row.is_nested(column)) return "the label is an object or a list of lists";
  return row.is_typed && row.has_column(column) ? "the label is null" : "there is no label";
}

[[noreturn]] void throw_no_rows(const SplitSource& source) {
  std::vector<std::string> names;
  for (const auto& file : source.files) names.push_back(file.string());
  throw Error::data("the split '{}' has no rows ({}). Check the files, or leave the split out.", source.name,
                    fmt::join(names, ", "));
}

void count_label(const std::vector<float>& labels, const LabelSet& set, SplitReport& report) {
  if (labels.empty()) {
    ++report.num_unlabelled;
  } else if (set.problem == Problem::SingleLabel) {
    ++report.label_counts[static_cast<size_t>(labels[0])];
  } else if (set.problem == Problem::MultiLabel) {
    for (size_t i = 0; i < labels.size(); ++i) report.label_counts[i] += labels[i] != 0 ? 1 : 0;
  }
}

std::string label_text(const std::vector<float>& labels, const LabelSet& set) {
  if (labels.empty()) return "none";
  if (set.problem == Problem::Regression) return fmt::format("{}", fmt::join(labels, ", "));
  if (set.problem == Problem::SingleLabel) {
    const auto index = static_cast<size_t>(labels[0]);
    return fmt::format("{} ({})", index, set.names()[index]);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] != 0) names.push_back(set.names()[i]);
  }
  return fmt::format("[{}]", fmt::join(names, ", "));
}

void measure_targets(const std::vector<LabelledRow>& rows, SplitReport& report) {
  int64_t count = 0;
  for (const LabelledRow& row : rows) {
    for (const float target : row.labels) {
      report.lowest = count == 0 ? target : std::min<double>(report.lowest, target);
      report.highest = count == 0 ? target : std::max<double>(report.highest, target);
      report.mean += target;
      ++count;
    }
  }
  if (count > 0) report.mean /= static_cast<double>(count);
}

}  // namespace

EncodedTableRow encode_row(const TableRow& source, const SplitFormat& format, const text::Tokenizer& tokenizer) {
  const Columns& columns = format.columns;
  const std::string first = text_of(source, columns.text);
  const std::string second = columns.pair ? text_of(source, *columns.pair) : std::string();
  const text::EncodeOptions options{.max_length = format.max_length};
  text::Encoding encoding;
  try {
    encoding = columns.pair ? tokenizer.encode_pair(first, second, options) : tokenizer.encode(first, options);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", source.place.text(), error.what()));
  }
  if (encoding.ids.empty()) {
    throw Error::data("{}: the row has no token, as its text is empty and the tokenizer of {} adds none. Remove the row, "
                      "or give it a text.", source.place.text(), tokenizer.folder().string());
  }
  for (const int32_t id : encoding.ids) {
    if (id >= 0 && id < format.vocab_size) continue;
    throw Error::data("{}: token {} ('{}') is outside the model's vocabulary (vocab_size = {}). The tokenizer of {} does "
                      "not belong to this model, or tokens were added to it: use the model's own tokenizer.",
                      source.place.text(), id, one_line(tokenizer.id_to_token(id).value_or(""), kTokenCharacters),
                      format.vocab_size, tokenizer.folder().string());
  }
  EncodedTableRow result;
  result.row.ids = std::move(encoding.ids);
  result.row.type_ids = std::move(encoding.type_ids);
  result.num_cut = encoding.num_cut;
  result.has_empty_text = first.empty() || (columns.pair && second.empty());
  return result;
}

void add_row(EncodedTableRow encoded, ClassifySplit& split) {
  SplitReport& report = split.report;
  const auto length = static_cast<int64_t>(encoded.row.ids.size());
  report.shortest = split.rows.empty() ? length : std::min(report.shortest, length);
  report.longest = std::max(report.longest, length);
  report.num_tokens += length;
  report.num_tokens_cut += encoded.num_cut;
  if (encoded.num_cut > 0) ++report.num_truncated;
  if (encoded.has_empty_text) ++report.num_empty_texts;
  encoded.row.source_row = static_cast<int64_t>(split.rows.size());
  split.rows.push_back(std::move(encoded.row));
}

Columns columns_of(const SplitSource& source, const ClassifyDataOptions& options, const GlueTask* task,
                   bool needs_label) {
  const auto first = TableSource(source, task).next();
  if (!first) throw_no_rows(source);
  return choose_columns(options, task, *first, needs_label);
}

ReadSplit read_split(const SplitSource& source, const SplitFormat& format, const text::Tokenizer& tokenizer,
                     ThreadTeam& team) {
  ReadSplit read;
  read.split.name = source.name;
  for (const auto& file : source.files) read.split.report.files.push_back(file.string());
  read.labels.name = format.columns.label.value_or("");
  bool is_typed = true;
  BatchReader batches(source, format, read.split.report);
  for (bool is_last = false; !is_last;) {
    TableBatch batch = batches.next();
    std::vector<EncodedTableRow> encoded(batch.rows.size());
    team.run(batch.rows.size(), [&](size_t item, int) { encoded[item] = encode_row(batch.rows[item], format, tokenizer); });
    for (size_t i = 0; i < encoded.size(); ++i) {
      add_row(std::move(encoded[i]), read.split);
      TableRow& row = batch.rows[i];
      is_typed = is_typed && row.is_typed;
      read.labels.cells.push_back({format.columns.label ? row.at(*format.columns.label) : Cell(), std::move(row.place),
                                   words_of_no_label(row, read.labels.name)});
    }
    if (batch.fault) std::rethrow_exception(batch.fault);
    is_last = batch.is_last;
  }
  if (read.split.rows.empty()) throw_no_rows(source);
  if (!is_typed) read.labels.type_texts();
  return read;
}

void set_labels(ReadSplit& read, const LabelSet& set, Unlabelled unlabelled, const text::Tokenizer& tokenizer) {
  ClassifySplit& split = read.split;
  SplitReport& report = split.report;
  report.label_counts.assign(set.problem == Problem::Regression ? 0 : set.names().size(), 0);
  if (unlabelled == Unlabelled::Refused) require_labels(read.labels, set.problem);
  PieceHash hash;
  for (size_t i = 0; i < split.rows.size(); ++i) {
    LabelledRow& row = split.rows[i];
    row.labels = to_numbers(read.labels.cells[i], set, read.labels.name, unlabelled);
    count_label(row.labels, set, report);
    hash.add(3 * i, std::as_bytes(std::span(row.ids)));
    hash.add(3 * i + 1, std::as_bytes(std::span(row.type_ids)));
    hash.add(3 * i + 2, std::as_bytes(std::span(row.labels)));
  }
  if (set.problem == Problem::Regression) measure_targets(split.rows, report);
  report.example = one_line(tokenizer.decode(split.rows.front().ids, /*skip_special_tokens=*/false), kExampleCharacters);
  report.example_label = label_text(split.rows.front().labels, set);
  report.fingerprint = to_hex(hash.value());
}

}  // namespace lockstep::data
