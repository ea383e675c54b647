#include "lockstep/text/json_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::text {

namespace {

using Json = nlohmann::ordered_json;

/// Far more than any conversation; writing nested text recurses, so depth must have an end.
constexpr int kMaxDepth = 128;

struct Shape {
  bool is_too_deep = false;
  size_t num_keys = 0;  ///< in valid JSON: every colon outside a string follows one
};

Shape shape_of(std::string_view text) {
  Shape shape;
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (c == ':') ++shape.num_keys;
    shape.is_too_deep = depth > kMaxDepth;
    if (shape.is_too_deep) break;
  }
  return shape;
}

size_t count_keys(const Json& value) {
  if (!value.is_structured()) return 0;
  size_t count = value.is_object() ? value.size() : 0;
  for (const Json& inner : value) count += count_keys(inner);
  return count;
}

/// Without the library's own prefix "[json.exception.parse_error.101] ", and without its count of lines where it
/// speaks of the first: in a file of JSON lines that would be a second, contradicting line number.
std::string plain_words(std::string_view what) {
  const size_t prefix = what.find("] ");
  std::string words(prefix == std::string_view::npos ? what : what.substr(prefix + 2));
  constexpr std::string_view kFirstLine = "line 1, ";
  if (const size_t first = words.find(kFirstLine); first != std::string::npos) words.erase(first, kFirstLine.size());
  return words;
}

std::string excerpt(const Json& value) {
  constexpr size_t kLongest = 60;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace

struct JsonValue::Node {
  struct Document {
    Json root;
    bool repeats_a_key = false;
  };
  std::shared_ptr<const Document> document;
  const Json* value;
};

std::string_view name(JsonKind kind) {
  switch (kind) {
    case JsonKind::Null: return "null";
    case JsonKind::Boolean: return "boolean";
    case JsonKind::Integer: return "integer";
    case JsonKind::Real: return "number";
    case JsonKind::String: return "string";
    case JsonKind::Array: return "array";
    case JsonKind::Object: return "object";
  }
  return "unknown";
}

JsonValue JsonValue::parse(std::string_view text, std::string_view where) {
  const Shape shape = shape_of(text);
  if (shape.is_too_deep) {
    throw Error::data("{}: JSON nested deeper than {} levels. Flatten it.", where, kMaxDepth);
  }
  try {
    auto document = std::make_shared<Node::Document>();
    document->root = Json::parse(text);
    document->repeats_a_key = count_keys(document->root) < shape.num_keys;
    const Json* value = &document->root;
    return JsonValue(std::make_shared<const Node>(Node{std::move(document), value}));
  } catch (const Json::exception& error) {
    throw Error::data("{}: not valid JSON: {}. Correct or remove it.", where, plain_words(error.what()));
  }
}

template <class Root>
JsonValue JsonValue::of_root(Root root) {
  auto document = std::make_shared<Node::Document>();
  document->root = std::move(root);
  const Json* value = &document->root;
  return JsonValue(std::make_shared<const Node>(Node{std::move(document), value}));
}

JsonValue JsonValue::of_texts(const std::vector<std::string>& names, std::vector<std::optional<std::string>> values) {
  Json root = Json::object();
  for (size_t i = 0; i < names.size(); ++i) {
    root[names[i]] = values[i] ? Json(*std::move(values[i])) : Json(nullptr);
  }
  return of_root(std::move(root));
}

JsonValue JsonValue::with_fields(const std::vector<std::string>& names) const {
  require(is_object(), "an object");
  Json root = Json::object();
  for (const auto& item : node_->value->items()) {
    if (std::find(names.begin(), names.end(), item.key()) != names.end()) root[item.key()] = item.value();
  }
  return of_root(std::move(root));
}

JsonKind JsonValue::kind() const {
  const Json& value = *node_->value;
  if (value.is_null()) return JsonKind::Null;
  if (value.is_boolean()) return JsonKind::Boolean;
  if (value.is_number_integer()) return JsonKind::Integer;
  if (value.is_number()) return JsonKind::Real;
  if (value.is_string()) return JsonKind::String;
  return value.is_array() ? JsonKind::Array : JsonKind::Object;
}

void JsonValue::require(bool fits, std::string_view wanted) const {
  if (fits) return;
  throw Error::data("expected {}, got the {} {}", wanted, name(kind()), excerpt(*node_->value));
}

const std::string& JsonValue::as_string() const {
  require(is_string(), "a string");
  return node_->value->get_ref<const std::string&>();
}

bool JsonValue::as_boolean() const {
  require(kind() == JsonKind::Boolean, "true or false");
  return node_->value->get<bool>();
}

int64_t JsonValue::as_integer() const {
  const Json& value = *node_->value;
  const bool beyond = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  require(kind() == JsonKind::Integer && !beyond, "a 64-bit integer");
  return value.get<int64_t>();
}

double JsonValue::as_number() const {
  require(kind() == JsonKind::Integer || kind() == JsonKind::Real, "a number");
  return node_->value->get<double>();
}

size_t JsonValue::size() const { return node_->value->is_structured() ? node_->value->size() : 0; }

JsonValue JsonValue::operator[](size_t index) const {
  require(is_array(), "an array");
  if (index >= size()) throw Error::data("item {} of an array of {}", index, size());
  return JsonValue(std::make_shared<const Node>(Node{node_->document, &(*node_->value)[index]}));
}

std::optional<JsonValue> JsonValue::find(std::string_view field) const {
  if (!is_object()) return std::nullopt;
  const auto found = node_->value->find(field);
  if (found == node_->value->end()) return std::nullopt;
  return JsonValue(std::make_shared<const Node>(Node{node_->document, &*found}));
}

std::vector<std::string> JsonValue::fields() const {
  require(is_object(), "an object");
  std::vector<std::string> names;
  for (const auto& item : node_->value->items()) names.push_back(item.key());
  return names;
}

std::optional<std::vector<int64_t>> JsonValue::integers() const {
  if (!is_array()) return std::nullopt;
  std::vector<int64_t> result;
  result.reserve(size());
  for (const Json& item : *node_->value) {
    const bool beyond = item.is_number_unsigned() && item.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
    if (!item.is_number_integer() || beyond) return std::nullopt;
    result.push_back(item.get<int64_t>());
  }
  return result;
}

std::string JsonValue::json_with_renamed_keys(std::initializer_list<KeyPair> keys) const {
  require(is_array(), "an array");
  Json copy = *node_->value;
  for (Json& item : copy) {
    if (!item.is_object()) continue;
    for (const auto& [old_key, new_key] : keys) {
      const auto found = item.find(std::string(old_key));
      if (found == item.end()) continue;
      Json value = std::move(*found);
      item.erase(found);
      item[std::string(new_key)] = std::move(value);
    }
  }
  return copy.dump();
}

bool JsonValue::repeats_a_key() const { return node_->document->repeats_a_key; }

std::string JsonValue::json() const { return node_->value->dump(); }

}  // namespace lockstep::text
