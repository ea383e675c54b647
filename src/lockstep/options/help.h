#pragma once

#include <string>
#include <string_view>

#include "lockstep/options/command_line.h"
#include "lockstep/options/field.h"
#include "lockstep/options/text_layout.h"

namespace lockstep::options {

/// The help page: `introduction` (what the command does, examples), then the options that work, by group, with
/// defaults, units and choices, then the names of the others. Help::All explains those too and shows hidden ones.
/// `known_from`: the program whose flags they are.
std::string help_text(const Fields& fields, std::string_view introduction, Help help, const Page& page,
                      std::string_view known_from = "trl");

/// For --dry_run: what was given, then everything that works, each with its origin.
std::string resolved_text(const Fields& fields, const Origins& origins, const Page& page);

}  // namespace lockstep::options
