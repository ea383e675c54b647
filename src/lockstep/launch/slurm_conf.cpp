#include "lockstep/launch/slurm_conf.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace lockstep::launch {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\v\f";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool equal_in_lower_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::optional<int> to_count(std::string_view text) {
  int value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

/// "socket=/run/munge.socket,ttl=60"; in old files the path alone.
std::string socket_of(std::string_view info) {
  if (info.starts_with('/')) return std::string(info.substr(0, info.find(',')));
  while (!info.empty()) {
    const std::string_view item = info.substr(0, info.find(','));
    if (item.starts_with("socket=")) return std::string(item.substr(7));
    info.remove_prefix(std::min(info.size(), item.size() + 1));
  }
  return {};
}

void read_line(std::string_view line, SlurmConf& conf) {
  line = trim(line.substr(0, line.find('#')));
  const size_t equals = line.find('=');
  if (equals == std::string_view::npos) return;
  const std::string_view key = trim(line.substr(0, equals));
  const std::string_view value = trim(line.substr(equals + 1));
  if (equal_in_lower_case(key, "KillWait")) {
    if (const auto seconds = to_count(value)) conf.kill_wait = Milliseconds(int64_t{1000} * *seconds);
  } else if (equal_in_lower_case(key, "KillOnBadExit")) {
    conf.kill_on_bad_exit = to_count(value);
  } else if (equal_in_lower_case(key, "AuthInfo")) {
    conf.munge_socket = socket_of(value);
  }
}

}  // namespace

SlurmConf parse_slurm_conf(std::string_view text) {
  SlurmConf conf;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    read_line(line, conf);
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return conf;
}

SlurmConf read_slurm_conf(const Environment& environment) {
  std::vector<fs::path> places;
  if (const auto named = environment.find("SLURM_CONF"); named != environment.end()) places.emplace_back(named->second);
  for (const char* usual : {"/run/slurm/conf/slurm.conf", "/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf"}) {
    places.emplace_back(usual);
  }
  for (const fs::path& place : places) {
    std::error_code ignored;
    if (place.empty() || !fs::is_regular_file(place, ignored)) continue;
    try {
      return parse_slurm_conf(read_file(place));
    } catch (const Error&) {
      continue;  // not readable for this user: as if it were not there
    }
  }
  return {};
}

}  // namespace lockstep::launch
