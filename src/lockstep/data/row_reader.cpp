#include "lockstep/data/row_reader.h"

#include "lockstep/base/error.h"
#include "lockstep/data/arrow_rows.h"
#include "lockstep/data/file_format.h"
#include "lockstep/data/text_table.h"

#include <fmt/ranges.h>

#include <utility>

namespace lockstep::data {
namespace {

std::string_view text_of(const MappedFile& content) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  std::string_view text(reinterpret_cast<const char*>(content.bytes().data()), content.bytes().size());
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

class JsonReader final : public RowReader {
 public:
  explicit JsonReader(const fs::path& path) : lines_(open_content(path), path.string()) {}
  std::optional<text::JsonRow> next() override { return lines_.next(); }

 private:
  text::JsonLines lines_;
};

class CsvReader final : public RowReader {
 public:
  CsvReader(const fs::path& path, char delimiter)
      : content_(open_content(path)),
        file_(path.string()),
        scanner_(text_of(content_), {delimiter, Quoting::Rfc4180}, file_) {
    if (!scanner_.next(columns_)) {
      throw Error::data("{} is empty: its first line must name the columns. Add a line such as prompt{}completion.", file_,
                        delimiter);
    }
  }

  std::optional<text::JsonRow> next() override {
    std::vector<std::string> cells;
    if (!scanner_.next(cells)) return std::nullopt;
    if (cells.size() > columns_.size()) {
      throw Error::data("{}:{}: {} cells, but the file has {} columns ({}).{} Remove the cells that are too many, or quote the "
                        "one that holds a separator.", file_, scanner_.line(), cells.size(), columns_.size(),
                        fmt::join(columns_, ", "), delimiter_advice(columns_));
    }
    std::vector<std::optional<std::string>> values;
    for (std::string& cell : cells) {
      values.push_back(cell.empty() ? std::nullopt : std::optional(std::move(cell)));
    }
    values.resize(columns_.size());
    return text::JsonRow{text::JsonValue::of_texts(columns_, std::move(values)), file_, scanner_.line(), false};
  }

 private:
  MappedFile content_;
  std::string file_;
  TextTableScanner scanner_;
  std::vector<std::string> columns_;
};

class TextReader final : public RowReader {
 public:
  explicit TextReader(const fs::path& path) : content_(open_content(path)), file_(path.string()), rest_(text_of(content_)) {}

  std::optional<text::JsonRow> next() override {
    while (!rest_.empty()) {
      const size_t end = std::min(rest_.find('\n'), rest_.size());
      std::string_view line = rest_.substr(0, end);
      rest_.remove_prefix(std::min(end + 1, rest_.size()));
      ++number_;
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
      static const std::vector<std::string> kColumns{"text"};
      return text::JsonRow{text::JsonValue::of_texts(kColumns, {std::string(line)}), file_, number_, false};
    }
    return std::nullopt;
  }

 private:
  MappedFile content_;
  std::string file_;
  std::string_view rest_;
  int64_t number_ = 0;
};

}  // namespace

std::unique_ptr<RowReader> open_rows(const fs::path& file) {
  const auto format = file_format(file);
  if (!format) throw Error::data("{}: is in no format that is read: {}.", file.string(), readable_extensions());
  switch (*format) {
    case FileFormat::Json: return std::make_unique<JsonReader>(file);
    case FileFormat::Csv: return std::make_unique<CsvReader>(file, ',');
    case FileFormat::Tsv: return std::make_unique<CsvReader>(file, '\t');
    case FileFormat::Text: return std::make_unique<TextReader>(file);
    case FileFormat::Parquet:
    case FileFormat::Arrow: return open_arrow_rows(file);
  }
  return nullptr;
}

}  // namespace lockstep::data
