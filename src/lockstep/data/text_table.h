#pragma once

#include "lockstep/data/table.h"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// Splits the text of a CSV or TSV file into lines of cells. The text must outlive it. Linear in the text.
class TextTableScanner {
 public:
  TextTableScanner(std::string_view text, TextTableFormat format, std::string file)
      : text_(text), format_(format), file_(std::move(file)) {}

  /// The next line that is not blank; false at the end.
  bool next(std::vector<std::string>& cells);
  /// Where that line begins, from 1. A quoted cell may span several.
  int64_t line() const { return row_line_; }

 private:
  std::string quoted_cell();
  std::string plain_cell();
  bool at_end_of_line() const;
  void end_line();
  [[noreturn]] void fail(int64_t line, size_t line_start, size_t at, std::string_view what) const;

  std::string_view text_;
  TextTableFormat format_;
  std::string file_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  int64_t line_ = 1;
  int64_t row_line_ = 0;
};

/// What to say of a file with a single column whose name holds a semicolon, tab or comma: " Its first line holds a semicolon: ...";
/// empty for others.
std::string delimiter_advice(const std::vector<std::string>& columns);

}  // namespace lockstep::data
