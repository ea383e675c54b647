#pragma once

// Private to run_resolve*.cpp: the parts of make_run_spec().
#include "lockstep/launch/run_command_line.h"
#include "lockstep/options/value.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch::detail {

/// What the parts work on. `options` is a copy: the caller's variables may fill gaps in it.
struct Resolving {
  const ParsedRun& parsed;
  RunOptions options;
  const Environment& environment;
  const RunMachine& machine;
  options::Words& notes;
  options::Problems problems = {};
  RunSpec spec = {};

  std::string shown(std::string_view key, std::string_view value) const {
    return options::value_with_origin(key, value, options::origin_of(parsed.origins, key));
  }
  void refuse(std::string_view key, std::string_view value, std::string_view why) {
    problems.add(fmt::format("{}: {}", shown(key, value), why));
  }
  void note(std::string_view key, std::string_view value, std::string_view why) {
    notes.push_back(fmt::format("{} has no effect: {}.", shown(key, value), why));
  }
  /// An environment variable that is set and not empty.
  std::optional<std::string> variable(const std::string& name) const;
};

std::optional<int> parse_int(std::string_view text);
std::vector<std::string_view> split(std::string_view text, char separator);
/// Without blanks at both ends.
std::string_view trimmed(std::string_view text);

void resolve_processes(Resolving& run);
void resolve_nodes(Resolving& run);
void resolve_output(Resolving& run);
void resolve_end(Resolving& run);

}  // namespace lockstep::launch::detail
