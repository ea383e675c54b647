#pragma once

#include "lockstep/launch/line_multiplexer.h"
#include "lockstep/launch/process.h"
#include "lockstep/launch/run_spec.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// The grammar of --redirects and --tee: "3" for all of `num_workers`, or "0:3,12:1". Ranks beyond the workers are left
/// out. Absent when it is neither.
std::optional<std::vector<Streams>> parse_streams(std::string_view text, int num_workers);

/// The entries of such a list that nothing comes of: no worker has the rank, or a later entry is of the same rank.
std::vector<std::string> idle_entries(std::string_view text, int num_workers);

/// "a,b,,c" -> {"a", "b,c"}; an empty text has no words.
std::vector<std::string> parse_filters(std::string_view text);

/// Where one stream of one worker goes.
struct StreamRoute {
  StreamTarget target = StreamTarget::Inherit;
  bool to_file = false;     ///< Pipe only
  bool to_console = false;  ///< Pipe only: behind the worker's prefix
  bool operator==(const StreamRoute&) const = default;
};
StreamRoute route(const OutputRules& rules, int local_rank, Stream stream);

/// No files at all.
bool is_null_device(const OutputRules& rules);

/// The prefix of a worker's tee'd lines. As Python's Template.safe_substitute: $name and ${name} are filled in where
/// the name is known and left as they are where not, $$ is a dollar sign.
std::string line_prefix(const std::string& prefix_template, const std::string& role, int rank, int local_rank,
                        const std::string& host);

}  // namespace lockstep::launch
