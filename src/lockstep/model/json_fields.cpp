#include "lockstep/model/json_fields.h"

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

#include <nlohmann/json.hpp>

#include <cmath>
#include <utility>

namespace lockstep::model {

using nlohmann::json;

namespace {

/// The parser's words without the library's own prefix "[json.exception.parse_error.101] parse error at ".
std::string words_of(const json::parse_error& error) {
  const std::string text = error.what();
  const size_t prefix = text.find("parse error at ");
  return prefix == std::string::npos ? text : text.substr(prefix + 15);
}

}  // namespace

JsonFields::JsonFields(std::filesystem::path file, std::shared_ptr<const json> object, std::string prefix)
    : file_(std::move(file)), object_(std::move(object)), prefix_(std::move(prefix)) {}

JsonFields JsonFields::read(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  json parsed;
  try {
    parsed = json::parse(text);
  } catch (const json::parse_error& error) {
    throw Error::data("{}: is not valid JSON at {}. Fetch the file again.", file.string(), words_of(error));
  }
  if (!parsed.is_object())
    throw Error::data("{}: holds a JSON {}, not an object. Fetch the file again.", file.string(), parsed.type_name());
  return {file, std::make_shared<const json>(std::move(parsed)), ""};
}

std::string JsonFields::where(const std::string& key) const {
  const auto it = object_->find(key);
  std::string value = it == object_->end() ? "(absent)" : it->dump(-1, ' ', false, json::error_handler_t::replace);
  if (value.size() > 80) value = value.substr(0, 77) + "...";
  return fmt::format("{}: {}{} = {}", file_.string(), prefix_, key, value);
}

bool JsonFields::has(const std::string& key) const {
  const auto it = object_->find(key);
  return it != object_->end() && !it->is_null();
}

bool JsonFields::is_null(const std::string& key) const { return object_->contains(key) && !has(key); }

int64_t JsonFields::num_keys() const { return static_cast<int64_t>(object_->size()); }

bool JsonFields::is_integer(const std::string& key) const { return has(key) && object_->at(key).is_number_integer(); }

int64_t JsonFields::integer(const std::string& key, int64_t absent) const {
  if (!has(key)) return absent;
  const json& value = object_->at(key);
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    throw Error::data("{} is too large. Correct it.", where(key));
  if (!value.is_number_integer()) throw Error::data("{} must be a whole number. Correct it.", where(key));
  return value.get<int64_t>();
}

double JsonFields::real(const std::string& key, double absent) const {
  if (!has(key)) return absent;
  const json& value = object_->at(key);
  if (!value.is_number()) throw Error::data("{} must be a number. Correct it.", where(key));
  return value.get<double>();
}

bool JsonFields::boolean(const std::string& key, bool absent) const {
  if (!has(key)) return absent;
  const json& value = object_->at(key);
  if (!value.is_boolean()) throw Error::data("{} must be true or false. Correct it.", where(key));
  return value.get<bool>();
}

std::string JsonFields::text(const std::string& key, const std::string& absent) const {
  if (!has(key)) return absent;
  const json& value = object_->at(key);
  if (!value.is_string()) throw Error::data("{} must be a string. Correct it.", where(key));
  return value.get<std::string>();
}

std::vector<std::string> JsonFields::texts(const std::string& key) const {
  std::vector<std::string> out;
  if (!has(key)) return out;
  const json& value = object_->at(key);
  if (!value.is_array()) throw Error::data("{} must be a list of strings. Correct it.", where(key));
  for (const json& entry : value) {
    if (!entry.is_string()) throw Error::data("{} must be a list of strings. Correct it.", where(key));
    out.push_back(entry.get<std::string>());
  }
  return out;
}

std::vector<double> JsonFields::reals(const std::string& key) const {
  std::vector<double> out;
  if (!has(key)) return out;
  const json& value = object_->at(key);
  if (!value.is_array()) throw Error::data("{} must be a list of numbers. Correct it.", where(key));
  for (const json& entry : value) {
    if (!entry.is_number()) throw Error::data("{} must be a list of numbers. Correct it.", where(key));
    out.push_back(entry.get<double>());
  }
  return out;
}

std::vector<int64_t> JsonFields::integers(const std::string& key) const {
  std::vector<int64_t> out;
  for (const double value : reals(key)) {
    if (value != std::floor(value) || std::abs(value) > 1e15)
      throw Error::data("{} must be a list of whole numbers. Correct it.", where(key));
    out.push_back(static_cast<int64_t>(value));
  }
  return out;
}

JsonFields JsonFields::object(const std::string& key) const {
  const json value = has(key) ? object_->at(key) : json::object();
  if (!value.is_object()) throw Error::data("{} must be an object. Correct it.", where(key));
  return {file_, std::make_shared<const json>(value), prefix_ + key + "."};
}

int64_t JsonFields::size(const std::string& key, int64_t absent, int64_t high) const {
  const int64_t value = integer(key, absent);
  if (value < 1 || value > high) throw Error::data("{} must be from 1 to {}. Correct it.", where(key), high);
  return value;
}

double JsonFields::positive(const std::string& key, double absent) const {
  const double value = real(key, absent);
  if (!(value > 0) || !std::isfinite(value)) throw Error::data("{} must be above 0. Correct it.", where(key));
  return value;
}

}  // namespace lockstep::model
