#pragma once

#include "lockstep/options/environment.h"
#include "lockstep/options/resolve.h"
#include "lockstep/recipes/generate_options.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>

/// `lockstep generate` up to the point where the model is loaded. Torch-free.
namespace lockstep::recipes {

struct ParsedGenerate {
  GenerateOptions options;
  options::Origins origins;
  options::Words notes;
  options::EnvironmentVariables environment;  ///< of the config file
  bool dry_run = false;
  std::optional<std::string> help;            ///< print this and stop
};

/// `args`: the words after `lockstep generate`. `has_terminal`: standard input is one. Throws Error{Usage} that lists all
/// problems with the flags.
ParsedGenerate parse_generate(std::span<const std::string> args, const options::Environment& environment, bool has_terminal);
std::string resolved_generate_text(const ParsedGenerate& parsed, const options::Page& page);

/// What the worker is told, and the inverse.
std::string dump_generate(const ParsedGenerate& parsed);
GenerateOptions load_generate(std::string_view text);
/// The part of docs/options.md.
std::string generate_markdown();

}  // namespace lockstep::recipes
