#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::text {

enum class JsonKind { Null, Boolean, Integer, Real, String, Array, Object };

/// "null", "boolean", "integer", "number", "string", "array", "object": for messages.
std::string_view name(JsonKind kind);

/// A read-only JSON value; objects keep the order of their keys. A copy shares the document, which lives as long as
/// one of its values. Copies may be used from several threads at once.
/// Accessors that meet another kind than theirs throw Error{Data} that says what was there; name the place with
/// JsonRow's accessors where the user should see it.
class JsonValue {
 public:
  /// `where` starts the message of the Error{Data} for a text that is not JSON, e.g. "train.jsonl:7".
  static JsonValue parse(std::string_view text, std::string_view where);

  /// An object of texts, by `names`; absent ones are null. As many values as names.
  static JsonValue of_texts(const std::vector<std::string>& names, std::vector<std::optional<std::string>> values);
  /// A copy of an object with these fields alone, those that it has, in its own order.
  JsonValue with_fields(const std::vector<std::string>& names) const;

  JsonKind kind() const;
  bool is_null() const { return kind() == JsonKind::Null; }
  bool is_string() const { return kind() == JsonKind::String; }
  bool is_array() const { return kind() == JsonKind::Array; }
  bool is_object() const { return kind() == JsonKind::Object; }

  const std::string& as_string() const;
  bool as_boolean() const;
  /// Integers only, not 3.0.
  int64_t as_integer() const;
  /// Integers and reals.
  double as_number() const;

  /// Number of items or of fields; 0 for what is neither array nor object.
  size_t size() const;
  /// Item of an array; throws for an index out of range.
  JsonValue operator[](size_t index) const;
  /// Field of an object; nothing if it is absent or this is no object.
  std::optional<JsonValue> find(std::string_view field) const;
  /// Field names of an object, in order.
  std::vector<std::string> fields() const;

  /// An object somewhere in the text that was parsed has the same key twice. The last value holds then, as in Python.
  bool repeats_a_key() const;

  /// All items of an array of 64-bit integers; nothing for anything else.
  std::optional<std::vector<int64_t>> integers() const;

  using KeyPair = std::pair<std::string_view, std::string_view>;
  /// An array as JSON text, its objects with other keys, as Python's item[second] = item.pop(first) leaves them: at the
  /// end, unless there was such a key.
  std::string json_with_renamed_keys(std::initializer_list<KeyPair> keys) const;

  /// As JSON text on one line, e.g. for ChatTemplate::render. (An integer beyond 64 bits was read as a number.)
  std::string json() const;

 private:
  struct Node;
  template <class Json>
  static JsonValue of_root(Json root);
  explicit JsonValue(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  void require(bool fits, std::string_view wanted) const;

  std::shared_ptr<const Node> node_;
};

}  // namespace lockstep::text
