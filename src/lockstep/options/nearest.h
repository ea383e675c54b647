#pragma once

#include <string>
#include <string_view>

#include "lockstep/options/field.h"

namespace lockstep::options {

/// Up to three keys of `fields` that someone who wrote `key` may have meant, best first. Hidden ones are left out.
Words nearest_keys(const Fields& fields, std::string_view key);

/// What to do about an unknown flag or YAML key: the successor of a name that trl or transformers used to have, else
/// the nearest names, else where to look. `prefix` is "--" or "".
std::string unknown_key_advice(const Fields& fields, std::string_view key, std::string_view prefix);

}  // namespace lockstep::options
