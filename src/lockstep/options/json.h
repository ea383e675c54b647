#pragma once

#include <string>
#include <string_view>

#include "lockstep/options/field.h"

namespace lockstep::options {

/// The resolved options as JSON: each value with its origin, numbers exact. Secrets are left out. This is what the
/// front program hands to the workers and what is stored with the run.
std::string dump_json(const Fields& fields, const Origins& origins, std::string_view command);

/// The inverse. An option that is not there keeps its default: the run is older than the option. One that this version does
/// not have is an error, as it may have changed the result. `where` names the text in errors (Error{Data}, with the field).
Origins load_json(std::string_view text, const Fields& fields, std::string_view command, std::string_view where);

}  // namespace lockstep::options
