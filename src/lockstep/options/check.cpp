#include "lockstep/options/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "lockstep/options/value.h"

namespace lockstep::options {
namespace {

bool contains(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::optional<double> number(const Value& value) {
  if (const auto* held = std::get_if<int64_t>(&value)) return static_cast<double>(*held);
  if (const auto* held = std::get_if<double>(&value)) return *held;
  if (const auto* held = std::get_if<std::optional<int64_t>>(&value); held != nullptr && *held) {
    return static_cast<double>(**held);
  }
  if (const auto* held = std::get_if<std::optional<double>>(&value); held != nullptr && *held) return **held;
  return std::nullopt;
}

/// "must be at least 0 and below 1"; empty if `value` is inside.
std::string range_fault(const Spec& spec, double value) {
  const auto inside = [](const Bound& bound, double distance) {
    return distance > 0 || (bound.inclusive && distance == 0);
  };
  const bool above = !spec.lower || inside(*spec.lower, value - spec.lower->value);
  const bool below = !spec.upper || inside(*spec.upper, spec.upper->value - value);
  if (above && below) return {};
  return "must be " + range_words(spec);
}

/// The first key that an object in `text`, at any depth, has twice.
std::optional<std::string> repeated_json_key(const std::string& text) {
  std::vector<std::set<std::string>> open;
  std::optional<std::string> found;
  const auto look = [&](int, nlohmann::json::parse_event_t event, nlohmann::json& parsed) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(parsed.get<std::string>()).second && !found) {
      found = parsed.get<std::string>();
    }
    return true;
  };
  const auto parsed = nlohmann::json::parse(text, look, /*allow_exceptions=*/false);
  static_cast<void>(parsed);
  return found;
}

/// The same for what a field holds: one JSON text, or a list of them.
std::optional<std::string> repeated_key_of(const Field& field) {
  if (!field.spec.is_json) return std::nullopt;
  const Value value = field.value();
  Words texts;
  if (const auto* held = std::get_if<Words>(&value)) texts = *held;
  else if (const auto* held_list = std::get_if<std::optional<Words>>(&value)) texts = held_list->value_or(Words());
  else texts.push_back(to_text(value));
  for (const std::string& text : texts) {
    if (auto key = repeated_json_key(text)) return key;
  }
  return std::nullopt;
}

bool is_broken_json(const Field& field) {
  if (!field.spec.is_json || is_list(field)) return false;
  const std::string text = to_text(field.value());
  return text.starts_with('{') && !nlohmann::json::accept(text);
}

/// What is wrong with the value itself, with the remedy; empty if nothing is.
std::string fault(const Field& field) {
  const Spec& spec = field.spec;
  const std::string text = to_text(field.value());
  if (contains(spec.refused_values, text)) {
    return fmt::format("{}. {}", spec.refused_values_reason, spec.refused_values_remedy);
  }
  if (!spec.choices.empty() && !contains(spec.choices, text)) {
    return fmt::format("must be one of {}.", fmt::join(spec.choices, ", "));
  }
  if (!spec.pattern.empty() && !std::regex_match(text, std::regex(spec.pattern))) {
    return fmt::format("must be {}.", spec.pattern_words);
  }
  if (is_broken_json(field)) return fmt::format("must be {}.", expected_words(field));
  if (const auto key = repeated_key_of(field)) {
    return fmt::format("the key \"{}\" stands in it twice. Remove one of the two.", *key);
  }
  if (const std::optional<double> value = number(field.value())) {
    const std::string range = range_fault(spec, *value);
    const std::string initial = to_text(field.initial);
    if (!range.empty() && initial == "none") return range + ".";
    if (!range.empty()) return fmt::format("{}. The default is --{} {}.", range, spec.key, initial);
  }
  if (spec.kind == Class::Refused) return fmt::format("{}. {}", spec.reason, spec.remedy);
  return {};
}

}  // namespace

void check(const Fields& fields, const Origins& origins, Problems& problems, Words& notes) {
  for (const Field& field : fields) {
    const Spec& spec = field.spec;
    if (field.is_default() || contains(spec.accepted, to_text(field.value()))) continue;
    const std::string shown = value_with_origin(spec.key, shown_value(field), origin_of(origins, spec.key));
    if (const std::string text = fault(field); !text.empty()) {
      problems.add(fmt::format("{}: {}", shown, text));
    } else if (spec.kind == Class::NoObject) {
      notes.push_back(fmt::format("{} has no effect: {}.", shown, spec.reason));
    }
  }
}

}  // namespace lockstep::options
