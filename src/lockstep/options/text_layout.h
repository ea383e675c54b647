#pragma once

#include <string>
#include <string_view>

#include "lockstep/options/field.h"

namespace lockstep::options {

/// Where and how text is shown.
struct Page {
  size_t width = 100;   ///< columns
  bool colour = false;  ///< headings and flags stand out by terminal sequences
};

/// Breaks `text` at spaces into lines of at most `width` columns (a longer word gets a line of its own).
Words wrap(std::string_view text, size_t width);

/// `left` in a column of `column` characters after `indent`, `right` wrapped beside it; ends with a newline. A `left`
/// that is too long gets a line of its own.
std::string two_columns(std::string_view left, std::string_view right, size_t indent, size_t column, const Page& page);

std::string heading(std::string_view text, const Page& page);

}  // namespace lockstep::options
