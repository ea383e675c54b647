#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

/// Files of named columns, row by row: JSON lines, a JSON array of objects, CSV, TSV.
namespace lockstep::data {

/// A value of a cell that is no list. Cells of CSV and TSV files are always texts (is_typed() below).
using Scalar = std::variant<std::monostate, bool, int64_t, double, std::string>;
using ScalarList = std::vector<Scalar>;
/// monostate: null, or a cell that the row does not have.
using Cell = std::variant<std::monostate, bool, int64_t, double, std::string, ScalarList>;

inline bool is_null(const Cell& cell) { return std::holds_alternative<std::monostate>(cell); }
/// "a text", "an integer", "null" ...: for messages.
std::string_view kind_words(const Cell& cell);
/// The value as a short text for messages.
std::string shown(const Cell& cell);

struct RowPlace {
  std::shared_ptr<const std::string> file;
  int64_t number = 0;    ///< 1-based: the line where the row begins, or the item of a JSON array
  bool in_array = false;
  /// "data/train.csv:7", or "data/train.json, item 7".
  std::string text() const;
};

struct TableRow {
  std::shared_ptr<const std::vector<std::string>> columns;
  std::vector<Cell> cells;  ///< by column; fewer than columns where the line ended early
  RowPlace place;
  bool is_typed = false;    ///< JSON says what is a number; in CSV and TSV the reader of the column decides
  bool repeats_a_key = false;  ///< JSON lines: the last value of that key holds
  std::vector<std::string> nested = {};  ///< columns that are null here because a table cannot hold what is there

  /// Null where there is no such column or cell.
  const Cell& at(std::string_view column) const;
  bool has_column(std::string_view column) const;
  bool is_nested(std::string_view column) const;
};

enum class Quoting { Rfc4180, None };

struct TextTableFormat {
  char delimiter = ',';
  Quoting quoting = Quoting::Rfc4180;
};

/// Reads one file. The format follows the extension: .csv: commas and quotes as RFC 4180 has them (a quote inside an
/// unquoted cell is a character); .tsv: tabs, and quotes are characters, as in GLUE's own files; anything else: JSON.
/// The first line of a CSV or TSV file names the columns. A byte order mark, \r\n and blank lines are fine. The file is
/// mapped and read once; one row is in memory. Not thread-safe.
class TableReader {
 public:
  /// `names`: the columns of a CSV or TSV file whose first line is already a row.
  /// Throws Error{Data}: the file cannot be read, has no header, or names a column twice.
  explicit TableReader(const std::filesystem::path& path, std::optional<std::vector<std::string>> names = {});
  TableReader(TableReader&&) noexcept;
  TableReader& operator=(TableReader&&) noexcept;
  ~TableReader();

  /// The next row; nothing at the end. Throws Error{Data} with file, line and column, and what to do: a cell that is
  /// not closed, text after a closing quote, more cells than columns, a line that is no JSON object, a nested value.
  std::optional<TableRow> next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The cells of the first line of a CSV or TSV file, empty for other files: what a header is recognised by.
std::vector<std::string> first_line_cells(const std::filesystem::path& path);

/// By extension, as TableReader takes it; nothing for JSON.
std::optional<TextTableFormat> text_table_format(const std::filesystem::path& path);

}  // namespace lockstep::data
