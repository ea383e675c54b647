#pragma once

#include "lockstep/library/api.h"
#include "lockstep/library/tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

using Scalar = std::variant<std::monostate, bool, int64_t, double, std::string>;
/// monostate: null, or a cell that the row does not have. Cells of CSV and TSV files are texts.
using Value = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<Scalar>>;
/// By column.
using Row = std::map<std::string, Value>;

/// What Dataset::map() reads. Columns that are not named are found where one answer is possible, as `lockstep classify`
/// finds them: those of `task` (a task of GLUE: "mrpc" ...), a known pair of names, the only column of texts.
struct TokenizeOptions {
  std::string text = {}, text_pair = {};
  std::string task = {};
  bool truncation = false;                ///< see EncodeOptions
  std::optional<int64_t> max_length = {};
};

/// Rows of named cells, one split of a data set. Immutable; copies and what is made by the functions below share the rows.
class LOCKSTEP_API Dataset {
 public:
  /// No rows.
  Dataset();
  ~Dataset();
  Dataset(const Dataset&);
  Dataset& operator=(const Dataset&);
  /// Data of one's own. `name` is what messages call them: "<name>, item 7". Rows may have what a tokenizer gives:
  /// "input_ids" (and "token_type_ids"), lists of integers without padding.
  static Dataset from_rows(const std::vector<Row>& rows, const std::string& name = "rows");
  /// `next` is called until it gives nothing.
  static Dataset from_generator(const std::function<std::optional<Row>()>& next, const std::string& name = "rows");

  size_t num_rows() const;
  bool empty() const { return num_rows() == 0; }
  /// Of the first row.
  std::vector<std::string> column_names() const;
  /// With input_ids and token_type_ids once it is tokenized. Throws Error{Usage} beyond the last.
  Row operator[](size_t index) const;

  /// Tokenizes every row, on all cores. Throws Error{Data} with file and line of the first row at fault.
  Dataset map(const Tokenizer& tokenizer, const TokenizeOptions& options = {}) const;
  /// Puts what `function` makes of a row in its place. Tokenize afterwards.
  Dataset map(const std::function<Row(const Row&)>& function) const;
  /// The rows for which `keep` is true.
  Dataset filter(const std::function<bool(const Row&)>& keep) const;
  /// The first rows, at most so many.
  Dataset take(size_t count) const;
  Dataset rename_column(const std::string& from, const std::string& to) const;
  Dataset remove_columns(const std::vector<std::string>& names) const;

  struct Impl;

 private:
  friend struct DatasetAccess;
  explicit Dataset(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

/// Splits by name: "train", "validation", "test", or as the files are called.
class LOCKSTEP_API DatasetDict {
 public:
  DatasetDict() = default;
  explicit DatasetDict(std::map<std::string, Dataset> splits) : splits_(std::move(splits)) {}

  /// Throws Error{Usage} that names the splits there are.
  const Dataset& operator[](const std::string& split) const;
  bool contains(const std::string& split) const { return splits_.contains(split); }
  std::vector<std::string> names() const;

  /// The same for every split.
  DatasetDict map(const Tokenizer& tokenizer, const TokenizeOptions& options = {}) const;
  DatasetDict map(const std::function<Row(const Row&)>& function) const;
  DatasetDict rename_column(const std::string& from, const std::string& to) const;

 private:
  std::map<std::string, Dataset> splits_;
};

/// The splits of a folder of JSONL, JSON, CSV or TSV files (train.jsonl, data/validation.csv ...), or one file as "train".
/// Throws Error{Data} with file and line of what cannot be read.
LOCKSTEP_API DatasetDict load_dataset(const std::string& path);
/// Files by split.
LOCKSTEP_API DatasetDict load_dataset(const std::map<std::string, std::string>& data_files);

}  // namespace lockstep
