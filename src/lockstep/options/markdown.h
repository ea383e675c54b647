#pragma once

#include <string>
#include <string_view>

#include "lockstep/options/field.h"

namespace lockstep::options {

/// A section of docs/options.md for one command: tables of the options that work (type, default, meaning), of those
/// without an object here and of those refused, each with the reason; then the names by class.
std::string to_markdown(const Fields& fields, std::string_view command);

}  // namespace lockstep::options
