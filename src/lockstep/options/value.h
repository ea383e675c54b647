#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/options/field.h"

namespace lockstep::options {

/// The value as a person would write it: true, 2e-05, none; lists separated by spaces.
std::string to_text(const Value& value);
/// The field's present value; "(hidden)" for a secret that is set.
std::string shown_value(const Field& field);

/// The default as help and docs show it: "2e-05", "1024; none: no cut", or what holds while nothing is set: "the
/// tokenizer's own". Empty for an empty text, and for none without such words.
std::string default_text(const Field& field);

/// What argparse in trl would make of `text` for this field; nothing if it is not such a value. Booleans: true, yes,
/// t, y, 1 and their opposites. "none" and "null" unset an optional that is not a text. Numbers must be finite.
std::optional<Value> parse_value(const Field& field, std::string_view text);
/// The same for a list; a field that is no list takes exactly one word.
std::optional<Value> parse_words(const Field& field, const Words& words);
/// "a whole number", "true or false" ...: the words of the error when parse_value() has no value.
std::string expected_words(const Field& field);
/// A short name for tables: bool, int, float, str, list, json.
std::string type_name(const Field& field);

/// "at least 0 and below 1"; empty without limits.
std::string range_words(const Spec& spec);

bool is_boolean(const Field& field);
bool is_list(const Field& field);
/// A field whose value can be "none".
bool is_optional(const Field& field);
/// The boolean that is true unless told otherwise; such a flag has a --no_ form.
bool is_true_by_default(const Field& field);
/// Sets an optional to "none".
Value unset_value(const Field& field);

/// "learning_rate = -1 (run.yaml:14)": how every problem starts.
std::string value_with_origin(std::string_view key, std::string_view value, const Origin& origin);

}  // namespace lockstep::options
