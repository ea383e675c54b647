#include "lockstep/options/value.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "lockstep/base/error.h"

namespace lockstep::options {
namespace {

template <class T>
struct OptionalOf : std::false_type {
  using type = T;
};
template <class T>
struct OptionalOf<std::optional<T>> : std::true_type {
  using type = T;
};

/// Calls `work` with a default-constructed member of the field's type.
template <class Work>
auto with_member_type(const Field& field, Work work) {
  return std::visit([&](auto* member) { return work(std::remove_pointer_t<decltype(member)>{}); }, field.target);
}

template <class T>
bool holds(const Field& field) {
  return with_member_type(
      field, [](auto member) { return std::is_same_v<typename OptionalOf<decltype(member)>::type, T>; });
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return result;
}

std::optional<bool> parse_bool(std::string_view text) {
  static constexpr std::array<std::string_view, 5> kTrue = {"true", "yes", "t", "y", "1"};
  static constexpr std::array<std::string_view, 5> kFalse = {"false", "no", "f", "n", "0"};
  const std::string word = lower_case(text);
  if (std::find(kTrue.begin(), kTrue.end(), word) != kTrue.end()) return true;
  if (std::find(kFalse.begin(), kFalse.end(), word) != kFalse.end()) return false;
  return std::nullopt;
}

template <class Number>
std::optional<Number> parse_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  Number number{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>) {
    if (!std::isfinite(number)) return std::nullopt;
  }
  return number;
}

template <class T>
std::optional<T> parse_one(std::string_view text) {
  if constexpr (std::is_same_v<T, bool>) {
    return parse_bool(text);
  } else if constexpr (std::is_arithmetic_v<T>) {
    return parse_number<T>(text);
  } else if constexpr (std::is_same_v<T, Words>) {
    return Words{std::string(text)};
  } else {
    return std::string(text);
  }
}

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(int64_t value) { return fmt::format("{}", value); }
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(const std::string& value) { return value; }
std::string text_of(const Words& value) { return fmt::format("{}", fmt::join(value, " ")); }
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "none";
}

}  // namespace

std::string to_text(const Value& value) {
  return std::visit([](const auto& held) { return text_of(held); }, value);
}

std::string shown_value(const Field& field) {
  if (field.spec.is_secret && !field.is_default()) return "(hidden)";
  return to_text(field.value());
}

std::string default_text(const Field& field) {
  const std::string text = to_text(field.initial);
  if (is_optional(field) && text == "none") return field.spec.unset;
  return field.spec.unset.empty() ? text : fmt::format("{}; none: {}", text, field.spec.unset);
}

std::optional<Value> parse_value(const Field& field, std::string_view text) {
  return with_member_type(field, [&](auto member) -> std::optional<Value> {
    using Member = decltype(member);
    using Held = typename OptionalOf<Member>::type;
    if constexpr (OptionalOf<Member>::value && !std::is_same_v<Held, std::string>) {
      const std::string word = lower_case(text);
      if (word == "none" || word == "null") return Value(Member{});
    }
    auto parsed = parse_one<Held>(text);
    if (!parsed) return std::nullopt;
    return Value(Member(std::move(*parsed)));
  });
}

std::optional<Value> parse_words(const Field& field, const Words& words) {
  if (words.size() == 1) return parse_value(field, words.front());
  return with_member_type(field, [&](auto member) -> std::optional<Value> {
    using Member = decltype(member);
    if constexpr (std::is_same_v<typename OptionalOf<Member>::type, Words>) return Value(Member(words));
    return std::nullopt;
  });
}

std::string expected_words(const Field& field) {
  std::string words = "a text";
  if (is_boolean(field)) words = "true or false";
  if (holds<int64_t>(field)) words = "a whole number";
  if (holds<double>(field)) words = "a finite number such as 2e-5";
  if (is_list(field)) words = "a list";
  if (field.spec.is_json) words = "a mapping as JSON, such as '{\"key\": 1}'";
  return is_optional(field) && !holds<std::string>(field) ? words + ", or none" : words;
}

std::string type_name(const Field& field) {
  if (field.spec.is_json) return "json";
  if (is_boolean(field)) return "bool";
  if (holds<int64_t>(field)) return "int";
  if (holds<double>(field)) return "float";
  return is_list(field) ? "list" : "str";
}

std::string range_words(const Spec& spec) {
  Words sides;
  const auto side = [&](std::string_view words, double value) { sides.push_back(fmt::format("{} {}", words, value)); };
  if (spec.lower) side(spec.lower->inclusive ? "at least" : "above", spec.lower->value);
  if (spec.upper) side(spec.upper->inclusive ? "at most" : "below", spec.upper->value);
  return fmt::format("{}", fmt::join(sides, " and "));
}

bool is_boolean(const Field& field) { return holds<bool>(field); }
bool is_list(const Field& field) { return holds<Words>(field); }

bool is_optional(const Field& field) {
  return with_member_type(field, [](auto member) { return OptionalOf<decltype(member)>::value; });
}

bool is_true_by_default(const Field& field) {
  const auto* plain = std::get_if<bool>(&field.initial);
  return plain != nullptr && *plain;
}

Value unset_value(const Field& field) {
  LS_CHECK(is_optional(field), "{} cannot be unset", field.spec.key);
  return with_member_type(field, [](auto member) { return Value(member); });
}

std::string value_with_origin(std::string_view key, std::string_view value, const Origin& origin) {
  constexpr size_t kShown = 200;
  if (value.size() <= kShown) return fmt::format("{} = {} ({})", key, value, origin.text());
  return fmt::format("{} = {}... ({} characters, {})", key, value.substr(0, kShown / 4), value.size(), origin.text());
}

}  // namespace lockstep::options
