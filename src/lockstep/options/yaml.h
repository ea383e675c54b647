#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/options/command_line.h"
#include "lockstep/options/field.h"

namespace lockstep::options {

/// Names and values of environment variables.
using EnvironmentVariables = std::vector<std::pair<std::string, std::string>>;

struct YamlFile {
  Settings settings;
  EnvironmentVariables environment;  ///< the `env:` mapping, to be set before anything else happens
};

/// Reads a --config file as trl does: a mapping from option names to values, and `env:`. Texts are read as on the
/// command line (2e-5 is text to YAML). Mappings for JSON options become JSON. Every problem names file and line.
/// Throws Error{Usage} if the file cannot be read or is no YAML.
YamlFile read_yaml(const std::string& path, const Fields& fields, Problems& problems);

}  // namespace lockstep::options
