#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/options/command_line.h"
#include "lockstep/options/field.h"
#include "lockstep/options/yaml.h"

namespace lockstep::options {

struct Resolved {
  Origins origins;
  Words notes;                       ///< one line each, for the user
  EnvironmentVariables environment;  ///< of the config file's `env:`; the caller sets them before anything else
  bool dry_run = false;
  Help help = Help::None;
  Words meant;                       ///< keys that flags which could not be read may have meant
  Problems problems;                 ///< the caller adds its own checks, then throw_if_any()

  /// A flag that could not be read may have been this one: its problem is told, and "missing" would be a false second.
  bool may_mean(std::string_view key) const { return std::find(meant.begin(), meant.end(), key) != meant.end(); }
};

/// The one way from words to options: the members behind `fields` end up as default < --config file < command line,
/// checked one by one. With help asked for, nothing is read or checked. Throws Error{Usage} only for a config file
/// that cannot be read; everything else is gathered in `problems`.
Resolved resolve(std::span<const std::string> args, const Fields& fields);

}  // namespace lockstep::options
