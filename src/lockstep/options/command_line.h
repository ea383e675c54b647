#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/options/field.h"

namespace lockstep::options {

/// One value for one option.
struct Setting {
  std::string key;
  Value value;
  Origin origin;
};
using Settings = std::vector<Setting>;

/// Writes the settings into the fields' members, later ones over earlier ones.
void apply(const Settings& settings, const Fields& fields, Origins& origins);

enum class Help { None, Short, All };

struct CommandLine {
  Settings settings;  ///< in the order written
  std::optional<std::string> config;
  bool dry_run = false;
  Help help = Help::None;
  Words meant;  ///< keys that flags which could not be read may have meant
};

/// Reads flags as trl's parser does: dashes and underscores alike, `--flag value` and `--flag=value`, bare booleans,
/// --no_ forms of booleans that are true by default, several words for lists, unambiguous beginnings of names.
/// Own flags: --config FILE, --dry_run, -h / --help, --help_all. What it cannot read goes to `problems`.
CommandLine read_command_line(std::span<const std::string> args, const Fields& fields, Problems& problems);

}  // namespace lockstep::options
