#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/text/json_value.h"

namespace lockstep::text {

/// One JSON object of a data file. Accessors throw Error{Data} that begins with where().
struct JsonRow {
  JsonValue value;     ///< an object
  std::string file;
  int64_t number = 0;  ///< 1-based: the line of a JSON-lines file, the item of a file that is one array
  bool in_array = false;

  /// "data/train.jsonl:7", or "data/train.json, item 7".
  std::string where() const;
  /// JsonValue::repeats_a_key() of its line; of a file that is one array nothing is known of its items.
  bool repeats_a_key() const { return !in_array && value.repeats_a_key(); }

  /// There, and not null (a null field counts as absent).
  bool has(std::string_view field) const;
  /// The field; throws when it is absent, naming the fields that are there.
  JsonValue at(std::string_view field) const;
  /// The field, which must be a string / an array.
  std::string string(std::string_view field) const;
  JsonValue array(std::string_view field) const;
  /// The field, which must be an array of 64-bit integers.
  std::vector<int64_t> integers(std::string_view field) const;
};

/// Reads a file of documents row by row: JSON lines (blank lines are passed over, line ends may be \r\n, a byte order
/// mark is allowed), or one JSON array of objects, whatever the file's name. Not thread-safe; rows may outlive it.
class JsonLines {
 public:
  /// Throws Error{Data} when the file cannot be read, or is an array and not valid JSON.
  explicit JsonLines(const std::filesystem::path& path);
  /// The same of what is mapped; `file` names it in errors.
  JsonLines(MappedFile content, std::string file);
  JsonLines(JsonLines&&) noexcept;
  JsonLines& operator=(JsonLines&&) noexcept;
  ~JsonLines();

  /// The next row; nothing at the end. Throws Error{Data} with file and line for one that is not a JSON object.
  std::optional<JsonRow> next();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::text
