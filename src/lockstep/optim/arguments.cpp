#include "lockstep/optim/arguments.h"

#include "lockstep/base/error.h"
#include "lockstep/options/nearest.h"
#include "lockstep/options/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep::optim {
namespace {

using options::Field;
using options::Fields;

std::string known_arguments(const Fields& fields, const ArgumentSource& source) {
  if (fields.empty()) return fmt::format("{} takes no arguments. Leave it out.", source.owner);
  std::vector<std::string> keys;
  for (const Field& field : fields) keys.push_back(field.spec.key);
  return fmt::format("{} takes {}.", source.owner, fmt::join(keys, ", "));
}

Error unknown_argument(std::string_view key, const Fields& fields, const ArgumentSource& source) {
  const options::Words near = options::nearest_keys(fields, key);
  const std::string meant = near.empty() ? "" : fmt::format("Did you mean {}? ", fmt::join(near, " or "));
  return Error::usage("{}: {} is not an argument of {}. {}{}", source.flag, key, source.owner, meant,
                      known_arguments(fields, source));
}

bool in_range(const options::Spec& spec, double value) {
  const bool above = !spec.lower || value > spec.lower->value || (spec.lower->inclusive && value == spec.lower->value);
  const bool below = !spec.upper || value < spec.upper->value || (spec.upper->inclusive && value == spec.upper->value);
  return above && below;
}

/// What `value` has to be and is not; empty if nothing.
std::string fault_of(const options::Spec& spec, const options::Value& value) {
  std::optional<double> number;
  if (const auto* held = std::get_if<double>(&value)) number = *held;
  if (const auto* held = std::get_if<std::optional<double>>(&value); held != nullptr && *held) number = **held;
  if (const auto* held = std::get_if<int64_t>(&value)) number = static_cast<double>(*held);
  if (const auto* held = std::get_if<std::optional<int64_t>>(&value); held != nullptr && *held) {
    number = static_cast<double>(**held);
  }
  if (number && !in_range(spec, *number)) return options::range_words(spec);
  const std::string text = options::to_text(value);
  const bool chosen = spec.choices.empty() ||
                      std::find(spec.choices.begin(), spec.choices.end(), text) != spec.choices.end();
  return chosen ? "" : fmt::format("one of {}", fmt::join(spec.choices, ", "));
}

void set_argument(std::string_view key, std::string_view text, const Fields& fields, const ArgumentSource& source) {
  const Field* field = options::find(fields, key);
  if (field == nullptr) throw unknown_argument(key, fields, source);
  const std::optional<options::Value> value = options::parse_value(*field, text);
  const std::string wanted = value ? fault_of(field->spec, *value) : options::expected_words(*field);
  if (!wanted.empty()) {
    throw Error::usage("{}: {} = {}: must be {}. The default of {} is {}.", source.flag, key, text, wanted,
                       source.owner, options::to_text(field->initial));
  }
  field->set(*value);
}

}  // namespace

void read_json_arguments(std::string_view json, const Fields& fields, const ArgumentSource& source) {
  const auto object = nlohmann::json::parse(json, nullptr, false);
  if (!object.is_object()) {
    throw Error::usage("{} = {}: must be a JSON object such as '{{\"num_cycles\": 2}}'. {}", source.flag, json,
                       known_arguments(fields, source));
  }
  for (const auto& [key, value] : object.items()) {
    set_argument(key, value.is_string() ? value.get<std::string>() : value.is_null() ? "none" : value.dump(), fields,
                 source);
  }
}

void read_assignments(std::string_view text, const Fields& fields, const ArgumentSource& source) {
  std::string words(text);
  std::erase(words, ' ');
  if (words.empty()) return;
  std::set<std::string> seen;
  for (size_t begin = 0; begin <= words.size();) {
    const size_t end = std::min(words.find(',', begin), words.size());
    const std::string word = words.substr(begin, end - begin);
    const size_t equals = word.find('=');
    if (equals == std::string::npos || word.find('=', equals + 1) != std::string::npos) {
      throw Error::usage("{} = {}: '{}' is not of the form key=value. {}", source.flag, text, word,
                         known_arguments(fields, source));
    }
    const std::string key = word.substr(0, equals);
    set_argument(key, word.substr(equals + 1), fields, source);
    if (!seen.insert(options::canonical_key(key)).second) {
      throw Error::usage("{} = {}: {} stands in it twice. Remove one of the two.", source.flag, text, key);
    }
    begin = end + 1;
  }
}

}  // namespace lockstep::optim
