#pragma once

#include "lockstep/options/field.h"
#include "lockstep/options/text_layout.h"

#include <string>
#include <string_view>

namespace lockstep::launch {

/// The page of `lockstep run --help`: recipes, then the flags by group.
std::string run_help(const options::Fields& fields, const options::Page& page);

/// A completion script for `shell` (bash, zsh or tcsh): the flags of `lockstep run` and torchrun, else files.
std::string completion_script(const options::Fields& fields, std::string_view shell);

}  // namespace lockstep::launch
