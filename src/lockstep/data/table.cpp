#include "lockstep/data/table.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/data/text_table.h"
#include "lockstep/text/json_lines.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <type_traits>
#include <utility>

namespace lockstep::data {
namespace {

using text::JsonKind;
using text::JsonValue;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

std::string_view file_text(const MappedFile& file) {
  std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

std::string scalar_text(const Scalar& value) {
  return std::visit(
      [](const auto& held) -> std::string {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, std::monostate>) return "null";
        else if constexpr (std::is_same_v<Held, std::string>) return held;
        else return fmt::format("{}", held);
      },
      value);
}

/// Beyond 64 bits, as hashes are, only roughly: such a column is no label.
Scalar integer(const JsonValue& value) {
  const double roughly = value.as_number();
  constexpr double kBeyond = 9.2e18;
  if (roughly > kBeyond || roughly < -kBeyond) return roughly;
  return value.as_integer();
}

std::optional<Scalar> to_scalar(const JsonValue& value) {
  switch (value.kind()) {
    case JsonKind::Null: return Scalar();
    case JsonKind::Boolean: return Scalar(value.as_boolean());
    case JsonKind::Integer: return integer(value);
    case JsonKind::Real: return Scalar(value.as_number());
    case JsonKind::String: return Scalar(value.as_string());
    case JsonKind::Array:
    case JsonKind::Object: break;
  }
  return std::nullopt;
}

/// Absent for what a table cannot hold (objects, lists of lists): columns that nobody asks for may be anything.
std::optional<Cell> to_cell(const JsonValue& value) {
  if (value.kind() == JsonKind::Array) {
    ScalarList list;
    for (size_t i = 0; i < value.size(); ++i) {
      auto item = to_scalar(value[i]);
      if (!item) return std::nullopt;
      list.push_back(*std::move(item));
    }
    return list;
  }
  auto scalar = to_scalar(value);
  if (!scalar) return std::nullopt;
  return std::visit([](auto&& held) { return Cell(std::forward<decltype(held)>(held)); }, *std::move(scalar));
}

class JsonRowReader {
 public:
  explicit JsonRowReader(const fs::path& path) : lines_(path), file_(std::make_shared<const std::string>(path.string())) {}

  std::optional<TableRow> next() {
    const auto source = lines_.next();
    if (!source) return std::nullopt;
    TableRow row;
    std::vector<std::string> names = source->value.fields();
    // Rows nearly always have the columns of the one before: they share one list.
    if (!columns_ || *columns_ != names) columns_ = std::make_shared<const std::vector<std::string>>(std::move(names));
    row.columns = columns_;
    row.place = {file_, source->number, source->in_array};
    row.is_typed = true;
    row.repeats_a_key = source->repeats_a_key();
    row.cells.reserve(columns_->size());
    for (const std::string& name : *columns_) {
      std::optional<Cell> cell = to_cell(*source->value.find(name));
      if (!cell) row.nested.push_back(name);
      row.cells.push_back(std::move(cell).value_or(Cell()));
    }
    return row;
  }

 private:
  text::JsonLines lines_;
  std::shared_ptr<const std::string> file_;
  std::shared_ptr<const std::vector<std::string>> columns_;
};

class TextRowReader {
 public:
  TextRowReader(const fs::path& path, TextTableFormat format, std::optional<std::vector<std::string>> names)
      : content_(path),
        file_(std::make_shared<const std::string>(path.string())),
        scanner_(file_text(content_), format, path.string()) {
    if (!names) {
      names.emplace();
      if (!scanner_.next(*names)) {
        throw Error::data("{} is empty: its first line must name the columns. Add a line such as "
                          "sentence1{}sentence2{}label.", *file_, format.delimiter, format.delimiter);
      }
    }
    check_names(*names);
    columns_ = std::make_shared<const std::vector<std::string>>(*std::move(names));
  }

  std::optional<TableRow> next() {
    if (!scanner_.next(cells_)) return std::nullopt;
    if (cells_.size() > columns_->size()) {
      throw Error::data("{}:{}: {} cells, but the file has {} columns ({}).{} Remove the cells that are too many, or "
                        "quote the one that holds a separator.", *file_, scanner_.line(), cells_.size(),
                        columns_->size(), fmt::join(*columns_, ", "), delimiter_advice(*columns_));
    }
    TableRow row;
    row.columns = columns_;
    row.place = {file_, scanner_.line(), false};
    row.cells.reserve(cells_.size());
    for (std::string& cell : cells_) row.cells.emplace_back(std::move(cell));
    return row;
  }

 private:
  void check_names(const std::vector<std::string>& names) const {
    std::vector<std::string> sorted = names;
    std::sort(sorted.begin(), sorted.end());
    const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice == sorted.end()) return;
    throw Error::data("{}:1: two columns are called '{}'. Give each column a name of its own; the first line must name "
                      "the columns.", *file_, *twice);
  }

  MappedFile content_;
  std::shared_ptr<const std::string> file_;
  TextTableScanner scanner_;
  std::shared_ptr<const std::vector<std::string>> columns_;
  std::vector<std::string> cells_;
};

}  // namespace

std::string_view kind_words(const Cell& cell) {
  constexpr std::array<std::string_view, 6> kWords = {"null", "a boolean", "an integer", "a number", "a text", "a list"};
  return kWords.at(cell.index());
}

std::string shown(const Cell& cell) {
  constexpr size_t kLongest = 40;
  std::string text;
  if (const auto* list = std::get_if<ScalarList>(&cell)) {
    std::vector<std::string> items;
    for (const Scalar& item : *list) items.push_back(scalar_text(item));
    text = fmt::format("[{}]", fmt::join(items, ", "));
  } else if (const auto* held = std::get_if<std::string>(&cell)) {
    text = fmt::format("'{}'", *held);
  } else {
    text = std::visit(
        [](const auto& value) -> std::string {
          using Held = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<Held, std::monostate>) return "null";
          else if constexpr (std::is_arithmetic_v<Held>) return fmt::format("{}", value);
          else return {};
        },
        cell);
  }
  if (text.size() <= kLongest) return text;
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

std::string RowPlace::text() const {
  return in_array ? fmt::format("{}, item {}", *file, number) : fmt::format("{}:{}", *file, number);
}

const Cell& TableRow::at(std::string_view column) const {
  static const Cell kNull;
  const auto found = std::find(columns->begin(), columns->end(), column);
  const auto index = static_cast<size_t>(found - columns->begin());
  return index < cells.size() ? cells[index] : kNull;
}

bool TableRow::has_column(std::string_view column) const {
  return std::find(columns->begin(), columns->end(), column) != columns->end();
}

bool TableRow::is_nested(std::string_view column) const {
  return std::find(nested.begin(), nested.end(), column) != nested.end();
}

std::optional<TextTableFormat> text_table_format(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& letter : extension) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  if (extension == ".csv") return TextTableFormat{',', Quoting::Rfc4180};
  if (extension == ".tsv") return TextTableFormat{'\t', Quoting::None};
  return std::nullopt;
}

std::vector<std::string> first_line_cells(const fs::path& path) {
  std::vector<std::string> cells;
  const auto format = text_table_format(path);
  if (!format) return cells;
  const MappedFile content(path);
  TextTableScanner(file_text(content), *format, path.string()).next(cells);
  return cells;
}

struct TableReader::Impl {
  std::function<std::optional<TableRow>()> next;
};

TableReader::TableReader(const fs::path& path, std::optional<std::vector<std::string>> names)
    : impl_(std::make_unique<Impl>()) {
  if (const auto format = text_table_format(path)) {
    impl_->next = [rows = std::make_shared<TextRowReader>(path, *format, std::move(names))] { return rows->next(); };
  } else {
    impl_->next = [rows = std::make_shared<JsonRowReader>(path)] { return rows->next(); };
  }
}

TableReader::TableReader(TableReader&&) noexcept = default;
TableReader& TableReader::operator=(TableReader&&) noexcept = default;
TableReader::~TableReader() = default;

std::optional<TableRow> TableReader::next() { return impl_->next(); }

}  // namespace lockstep::data
