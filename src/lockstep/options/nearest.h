#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/options/field.h"

namespace lockstep::options {

/// The word that someone who wrote `written` may have meant, by edits; empty if none is near.
std::string nearest_word(std::span<const std::string_view> words, std::string_view written);

/// Up to three keys of `fields` that someone who wrote `key` may have meant, best first. Hidden ones are left out.
Words nearest_keys(const Fields& fields, std::string_view key);

/// The successor of a name that trl, transformers or other trainers have or had; empty for any other.
std::string former_name_advice(std::string_view key, std::string_view prefix);

/// What to do about an unknown flag or YAML key: the successor of a name that trl or transformers used to have, else
/// the nearest names, else where to look. `prefix` is "--" or "".
std::string unknown_key_advice(const Fields& fields, std::string_view key, std::string_view prefix);

}  // namespace lockstep::options
