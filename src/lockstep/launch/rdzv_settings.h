#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/launch/worker_environment.h"
#include "lockstep/net/token.h"

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::launch {

/// The text of --rdzv_conf, "KEY=VALUE,KEY=VALUE", taken apart. Blanks around keys and values do not count; of a key
/// that is given twice the later value holds.
struct RdzvConf {
  std::map<std::string, std::string> values = {};
  std::vector<std::string> malformed = {};  ///< entries that lack a key or a value
  std::vector<std::string> repeated = {};   ///< keys that are given again, once for each time
};
/// Pure. An empty text has no entries.
RdzvConf parse_rdzv_conf(std::string_view text);

/// What --rdzv_conf says, read and checked. Absent: not given.
struct RdzvSettings {
  std::optional<Milliseconds> join_timeout = {};
  std::optional<Milliseconds> last_call_timeout = {};
  std::optional<Milliseconds> dead = {};  ///< keep_alive_interval x keep_alive_max_attempt, when either is given
  std::optional<bool> is_host = {};
  std::optional<std::string> token_file = {};
  bool require_token = false;
  std::vector<std::string> notes = {};    ///< keys that have no effect, for the user
};

/// Pure. torchrun's keys and two of our own (token_file, require_token). `timeout` is taken for join_timeout, which is
/// what those who write it mean. Throws Error{Usage} for a value that is no number, or no time from 1 ms to 1e8 s, and
/// for an unknown key with the nearest one.
RdzvSettings read_rdzv_settings(const std::map<std::string, std::string>& conf);

/// The secret of the job, if there is one: the file of --rdzv_conf token_file, else LOCKSTEP_JOB_TOKEN, else the file
/// LOCKSTEP_JOB_TOKEN_FILE. Throws Error{Usage} for one that cannot be read or is too short.
std::optional<net::Token> find_token(const RdzvSettings& settings, const Environment& environment);

}  // namespace lockstep::launch
