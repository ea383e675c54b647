#pragma once

#include "lockstep/text/json_lines.h"

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::data {

/// The rows of one file of any format that file_format() knows, each as a JSON object. Not thread-safe.
class RowReader {
 public:
  virtual ~RowReader() = default;
  /// The next row; nothing at the end. Throws Error{Data} with the file and line (item, for formats without lines).
  virtual std::optional<text::JsonRow> next() = 0;
};

/// - JSON: lines, or one array.
/// - CSV, TSV: the first line names the columns; values are texts, empty ones null. Quotes as RFC 4180 has them.
/// - Text: each line that is not blank is a row with the column text.
/// - Parquet, Arrow: see arrow_rows.h.
/// Throws Error{Data} when the file cannot be read or is of no such format.
std::unique_ptr<RowReader> open_rows(const std::filesystem::path& file);

}  // namespace lockstep::data
