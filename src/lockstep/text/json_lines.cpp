#include "lockstep/text/json_lines.h"

#include <fmt/ranges.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::text {

namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kSpace = " \t\r\n";

std::string place(const std::string& file, int64_t number, bool in_array) {
  return in_array ? fmt::format("{}, item {}", file, number) : fmt::format("{}:{}", file, number);
}

bool is_blank(std::string_view line) { return line.find_first_not_of(kSpace) == std::string_view::npos; }

[[noreturn]] void throw_wrong_kind(const JsonRow& row, std::string_view field, std::string_view wanted,
                                   const JsonValue& got) {
  throw Error::data("{}: field \"{}\" must be {}; it is {} {}. Correct or remove this row.", row.where(), field, wanted,
                    got.kind() == JsonKind::Integer || got.kind() == JsonKind::Array || got.kind() == JsonKind::Object
                        ? "an"
                        : "a",
                    name(got.kind()));
}

}  // namespace

std::string JsonRow::where() const { return place(file, number, in_array); }

bool JsonRow::has(std::string_view field) const {
  const auto found = value.find(field);
  return found && !found->is_null();
}

JsonValue JsonRow::at(std::string_view field) const {
  if (auto found = value.find(field); found && !found->is_null()) return *std::move(found);
  throw Error::data("{}: no field \"{}\"; this row has: {}. Add the field, or name the one to use.", where(), field,
                    fmt::join(value.fields(), ", "));
}

std::string JsonRow::string(std::string_view field) const {
  const JsonValue found = at(field);
  if (!found.is_string()) throw_wrong_kind(*this, field, "a string", found);
  return found.as_string();
}

JsonValue JsonRow::array(std::string_view field) const {
  JsonValue found = at(field);
  if (!found.is_array()) throw_wrong_kind(*this, field, "an array", found);
  return found;
}

std::vector<int64_t> JsonRow::integers(std::string_view field) const {
  auto found = array(field).integers();
  if (found) return *std::move(found);
  throw Error::data("{}: field \"{}\" must be a list of integers; something else is in it. Correct or remove this row.",
                    where(), field);
}

struct JsonLines::Impl {
  Impl(MappedFile mapped, std::string name) : content(std::move(mapped)), file(std::move(name)) {
    const auto bytes = content.bytes();
    rest = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    if (rest.starts_with(kByteOrderMark)) rest.remove_prefix(kByteOrderMark.size());
    const size_t first = rest.find_first_not_of(kSpace);
    if (first != std::string_view::npos && rest[first] == '[') array = JsonValue::parse(rest, file);
  }

  /// The next row that is not blank, and counts it.
  std::optional<JsonValue> next_value() {
    if (array) {
      if (static_cast<size_t>(number) == array->size()) return std::nullopt;
      return (*array)[static_cast<size_t>(number++)];
    }
    while (!rest.empty()) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view line = rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
      ++number;
      if (!is_blank(line)) return JsonValue::parse(line, place(file, number, false));
    }
    return std::nullopt;
  }

  MappedFile content;
  std::string file;
  std::string_view rest;           ///< what follows the last line; unused for an array
  std::optional<JsonValue> array;  ///< the whole file, where it is one array
  int64_t number = 0;              ///< of the last row
};

JsonLines::JsonLines(const fs::path& path) : JsonLines(MappedFile(path), path.string()) {}
JsonLines::JsonLines(MappedFile content, std::string file)
    : impl_(std::make_unique<Impl>(std::move(content), std::move(file))) {}
JsonLines::JsonLines(JsonLines&&) noexcept = default;
JsonLines& JsonLines::operator=(JsonLines&&) noexcept = default;
JsonLines::~JsonLines() = default;

std::optional<JsonRow> JsonLines::next() {
  std::optional<JsonValue> value = impl_->next_value();
  if (!value) return std::nullopt;
  JsonRow row{*std::move(value), impl_->file, impl_->number, impl_->array.has_value()};
  if (!row.value.is_object()) {
    throw Error::data("{}: expected a JSON object, got: {}. Each line (or each item, if the file is one array) must be "
                      "an object such as {{\"text\": \"...\"}}.",
                      row.where(), name(row.value.kind()));
  }
  return row;
}

}  // namespace lockstep::text
