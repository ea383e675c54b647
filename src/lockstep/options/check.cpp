#include "lockstep/options/check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>

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
    const Origin origin = origin_of(origins, spec.key);
    const bool given = origin.kind != Origin::Kind::Default;
    const bool notes_this = spec.kind == Class::NoObject && (!field.is_default() || (given && spec.notes_default));
    if (field.is_default() && !notes_this) continue;
    if (contains(spec.accepted, to_text(field.value()))) continue;
    const std::string shown = value_with_origin(spec.key, shown_value(field), origin);
    if (const std::string text = fault(field); !text.empty()) {
      problems.add(fmt::format("{}: {}", shown, text));
    } else if (notes_this) {
      notes.push_back(fmt::format("{} has no effect: {}.", shown, spec.reason));
    }
  }
}

}  // namespace lockstep::options
