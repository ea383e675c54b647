#include "lockstep/data/text_table.h"

#include "lockstep/base/error.h"

#include <fmt/format.h>

#include <initializer_list>
#include <utility>

namespace lockstep::data {

bool TextTableScanner::at_end_of_line() const {
  return at_ == text_.size() || text_[at_] == '\n' || text_.substr(at_, 2) == "\r\n";
}

void TextTableScanner::end_line() {
  if (at_ < text_.size() && text_[at_] == '\r') ++at_;
  if (at_ < text_.size()) ++at_;
  ++line_;
  line_start_ = at_;
}

void TextTableScanner::fail(int64_t line, size_t line_start, size_t at, std::string_view what) const {
  throw Error::data("{}:{}, column {}: {}", file_, line, at - line_start + 1, what);
}

bool TextTableScanner::next(std::vector<std::string>& cells) {
  while (at_ < text_.size() && at_end_of_line()) end_line();
  if (at_ >= text_.size()) return false;
  cells.clear();
  row_line_ = line_;
  while (true) {
    const bool quoted = format_.quoting == Quoting::Rfc4180 && at_ < text_.size() && text_[at_] == '"';
    cells.push_back(quoted ? quoted_cell() : plain_cell());
    if (at_end_of_line()) break;
    ++at_;  // the delimiter
  }
  end_line();
  return true;
}

std::string TextTableScanner::plain_cell() {
  size_t end = at_;
  while (end < text_.size() && text_[end] != format_.delimiter && text_[end] != '\n') ++end;
  // Only before a line feed is a carriage return part of the line's end.
  const size_t stop = end > at_ && end < text_.size() && text_[end] == '\n' && text_[end - 1] == '\r' ? end - 1 : end;
  std::string cell(text_.substr(at_, stop - at_));
  at_ = stop;
  return cell;
}

std::string TextTableScanner::quoted_cell() {
  const size_t opened = at_++;
  const size_t opened_line_start = line_start_;
  const int64_t opened_line = line_;
  std::string cell;
  while (true) {
    const size_t quote = text_.find('"', at_);
    if (quote == std::string_view::npos) {
      fail(opened_line, opened_line_start, opened,
           "this quote is never closed. Close it, or write the file as .tsv, where quotes are plain characters.");
    }
    const std::string_view piece = text_.substr(at_, quote - at_);
    for (size_t i = piece.find('\n'); i != std::string_view::npos; i = piece.find('\n', i + 1)) {
      ++line_;
      line_start_ = at_ + i + 1;
    }
    cell += piece;
    at_ = quote + 1;
    if (at_ >= text_.size() || text_[at_] != '"') break;
    cell += '"';
    ++at_;
  }
  if (!at_end_of_line() && text_[at_] != format_.delimiter) {
    fail(line_, line_start_, at_,
         "text after a closing quote. Write a quote inside a quoted cell twice (\"\"), or remove the text.");
  }
  return cell;
}

/// Nearly always a file with another delimiter than its name says.
std::string delimiter_advice(const std::vector<std::string>& columns) {
  for (const auto& [letter, words] : std::initializer_list<std::pair<char, std::string_view>>{
           {';', "a semicolon"}, {'\t', "a tab"}, {',', "a comma"}}) {
    if (columns.size() == 1 && columns[0].find(letter) != std::string::npos) {
      return fmt::format(" Its first line holds {}: .csv files are separated by commas, .tsv files by tabs.", words);
    }
  }
  return {};
}

}  // namespace lockstep::data
