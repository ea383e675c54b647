#include "lockstep/options/text_layout.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::options {

Words wrap(std::string_view text, size_t width) {
  Words lines;
  std::string line;
  while (!text.empty()) {
    const size_t space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    text = space == std::string_view::npos ? std::string_view{} : text.substr(space + 1);
    if (!line.empty() && line.size() + 1 + word.size() > width) lines.push_back(std::exchange(line, {}));
    if (!line.empty()) line += ' ';
    line += word;
  }
  if (!line.empty()) lines.push_back(std::move(line));
  return lines;
}

std::string two_columns(std::string_view left, std::string_view right, size_t indent, size_t column,
                        const Page& page) {
  const size_t start = indent + column;
  const Words lines = wrap(right, page.width > start + 20 ? page.width - start : 20);
  const std::string shown = page.colour ? fmt::format("\033[36m{}\033[0m", left) : std::string(left);
  std::string text = std::string(indent, ' ') + shown;
  size_t at = indent + left.size();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0 || at + 2 > start) {
      text += '\n';
      at = 0;
    }
    text += std::string(start - at, ' ') + lines[i];
  }
  return text + "\n";
}

std::string heading(std::string_view text, const Page& page) {
  return page.colour ? fmt::format("\033[1m{}\033[0m\n", text) : fmt::format("{}\n", text);
}

}  // namespace lockstep::options
