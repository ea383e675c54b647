#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/options/environment.h"
#include "lockstep/options/resolve.h"
#include "lockstep/recipes/sft_options.h"

/// `lockstep sft` up to the point where workers start. Torch-free: the front program and the worker link it.
namespace lockstep::recipes {

struct ParsedSft {
  SftOptions options;
  options::Origins origins;
  options::Words notes;                       ///< one line each, for the user
  options::EnvironmentVariables environment;  ///< of the config file; set them before anything else
  bool dry_run = false;
  int64_t dry_run_processes = 1;              ///< of all nodes; set in the worker alone
  std::optional<std::string> help;            ///< print this and stop; the rest holds defaults then
};

/// `args`: the words after `lockstep sft`. Throws Error{Usage} that lists all problems with the flags.
ParsedSft parse_sft(std::span<const std::string> args, const options::Environment& environment);

/// For --dry_run: what was given, then all defaults, with origins.
std::string resolved_sft_text(const ParsedSft& parsed, const options::Page& page);

/// The file that the front program writes and the workers read: options and origins, numbers exact.
std::string dump_sft(const ParsedSft& parsed);
/// The inverse; `where` names the text in errors. Notes, environment and help are empty.
ParsedSft load_sft(std::string_view text, std::string_view where);

/// The whole of docs/options.md.
std::string options_markdown();

}  // namespace lockstep::recipes
