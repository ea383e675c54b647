#include "lockstep/report/html.h"

#include "lockstep/base/grouped.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace lockstep::report {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// Bytes of the UTF-8 character at the start of `text`; 0 if it is none (overlong forms and surrogates included).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0U; };
  const uint32_t first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const uint32_t second = byte(1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool beyond = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || beyond ? 0 : length;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text[0];
    const bool is_control = length == 1 && (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) && c != '\n' && c != '\t';
    if (length == 0 || is_control) {
      out += kReplacement;
      text.remove_prefix(1);
      continue;
    }
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string user_text(std::string_view text) { return "<bdi>" + escape_html(text) + "</bdi>"; }

std::string number_text(double value) {
  if (!std::isfinite(value)) return "not finite";
  if (std::abs(value) >= 1e4 && std::abs(value) < 1e15) {
    return (value < 0 ? "-" : "") + grouped(static_cast<int64_t>(std::llround(std::abs(value))));
  }
  return fmt::format("{:.5g}", value);
}

}  // namespace lockstep::report
