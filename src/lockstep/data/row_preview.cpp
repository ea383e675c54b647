#include "lockstep/data/row_preview.h"

#include "lockstep/text/tokenizer.h"

#include <fmt/format.h>

#include <span>
#include <string_view>

namespace lockstep::data {
namespace {

bool continues_character(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; }

/// Byte offset of every code point of UTF-8 text, and the end.
std::vector<size_t> character_starts(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!continues_character(text[i])) starts.push_back(i);
  }
  starts.push_back(text.size());
  return starts;
}

std::string shortened(std::string_view text, size_t shown) {
  const auto starts = character_starts(text);
  const size_t num_characters = starts.size() - 1;
  if (num_characters <= 2 * shown) return std::string(text);
  return fmt::format("{} (... {} characters ...) {}", text.substr(0, starts[shown]), num_characters - 2 * shown,
                     text.substr(starts[num_characters - shown]));
}

/// Nothing in a user's data may steer the terminal. U+0080 to U+009F, which some terminals obey, are C2 80 to C2 9F.
std::string printable(std::string text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    if (byte == '\t') {
      text[i] = ' ';
    } else if ((byte < 0x20 && byte != '\n') || byte == 0x7F) {
      text[i] = '?';
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      text.replace(i, 2, "?");
    }
  }
  return text;
}

/// What `ids[begin, end)` add to the text before them. Decoding them alone would not do: decoders treat the start of a
/// text apart (SentencePiece's space).
std::string added_text(const text::Tokenizer& tokenizer, std::span<const int32_t> ids, size_t begin, size_t end) {
  const std::string before = begin == 0 ? std::string() : tokenizer.decode(ids.first(begin), false);
  std::string whole = tokenizer.decode(ids.first(end), false);
  if (whole.starts_with(before)) return whole.substr(before.size());
  return tokenizer.decode(ids.subspan(begin, end - begin), false);
}

}  // namespace

std::string preview(const TokenRow& row, const text::Tokenizer& tokenizer, size_t shown_characters) {
  const auto is_trained = [&](size_t i) { return i > 0 && row.trained[i] != 0; };
  std::string result;
  for (size_t begin = 0; begin < row.ids.size();) {
    size_t end = begin + 1;
    while (end < row.ids.size() && is_trained(end) == is_trained(begin)) ++end;
    const std::string text = shortened(added_text(tokenizer, row.ids, begin, end), shown_characters);
    result += is_trained(begin) ? fmt::format("[[{}]]", text) : text;
    begin = end;
  }
  return printable(std::move(result));
}

std::string one_line(std::string_view text, size_t shown_characters) {
  std::string result;
  for (const char c : printable(shortened(text, shown_characters))) {
    if (c == '\n') {
      result += "\\n";
    } else {
      result += c;
    }
  }
  return result;
}

}  // namespace lockstep::data
