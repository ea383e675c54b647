#include "lockstep/launch/rdzv_settings.h"

#include "lockstep/base/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>

namespace lockstep::launch {
namespace {

constexpr std::array<std::string_view, 13> kKnown = {
    "join_timeout", "last_call_timeout", "close_timeout", "heartbeat_timeout", "keep_alive_interval",
    "keep_alive_max_attempt", "cas_backoff_max_seconds", "read_timeout", "is_host", "store_type", "timeout",
    "token_file", "require_token"};
constexpr std::array<std::string_view, 2> kFormer = {"use_libuv", "rank"};
/// torchrun's defaults of the two that make the time of silence; only one of them may be given.
constexpr double kKeepAliveInterval_s = 5;
constexpr double kKeepAliveMaxAttempt = 3;
/// Of a time in seconds, or a count. Less would be 0 ms; more is three years, and products of more do not fit into the clock.
constexpr double kLeast = 0.001;
constexpr double kMost = 1e8;

class Reader {
 public:
  explicit Reader(const std::map<std::string, std::string>& conf) : conf_(conf) {}

  RdzvSettings read() {
    refuse_unknown();
    RdzvSettings settings;
    settings.join_timeout = milliseconds("join_timeout");
    if (!settings.join_timeout) settings.join_timeout = milliseconds("timeout");
    settings.last_call_timeout = milliseconds("last_call_timeout");
    const auto interval = number("keep_alive_interval");
    const auto attempts = number("keep_alive_max_attempt");
    if (interval || attempts) {
      settings.dead = silence(interval.value_or(kKeepAliveInterval_s), attempts.value_or(kKeepAliveMaxAttempt));
    }
    settings.is_host = truth("is_host");
    settings.require_token = truth("require_token").value_or(false);
    if (conf_.contains("token_file")) settings.token_file = conf_.at("token_file");
    for (const char* key : {"read_timeout", "rank"}) {  // make_run_spec() has named the others
      if (conf_.contains(key)) {
        settings.notes.push_back(fmt::format("--rdzv_conf {}={} has no effect: the meeting works without it.", key,
                                             conf_.at(key)));
      }
    }
    return settings;
  }

 private:
  void refuse_unknown() const {
    for (const auto& [key, value] : conf_) {
      const auto same = [&key = key](std::string_view known) { return known == key; };
      if (std::any_of(kKnown.begin(), kKnown.end(), same) || std::any_of(kFormer.begin(), kFormer.end(), same)) continue;
      throw Error::usage("--rdzv_conf {}={}: there is no such key. There are: {}.", key, value, fmt::join(kKnown, ", "));
    }
  }

  static Milliseconds silence(double interval_s, double attempts) {
    const double seconds = interval_s * attempts;
    if (seconds < kLeast || seconds > kMost) {
      throw Error::usage("--rdzv_conf keep_alive_interval={},keep_alive_max_attempt={}: together they are {} s of silence; "
                         "from {} to {:.0f} are possible.", interval_s, attempts, seconds, kLeast, kMost);
    }
    return Milliseconds(static_cast<int64_t>(1e3 * seconds));
  }

  std::optional<double> number(const std::string& key) const {
    const auto found = conf_.find(key);
    if (found == conf_.end()) return std::nullopt;
    double value = 0;
    const std::string& text = found->second;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size() || !(value >= kLeast && value <= kMost)) {
      throw Error::usage("--rdzv_conf {}={}: must be a number from {} to {:.0f} (seconds, or a count), such as 600.", key,
                         text, kLeast, kMost);
    }
    return value;
  }

  std::optional<Milliseconds> milliseconds(const std::string& key) const {
    const auto seconds = number(key);
    return seconds ? std::optional(Milliseconds(static_cast<int64_t>(1e3 * *seconds))) : std::nullopt;
  }

  std::optional<bool> truth(const std::string& key) const {
    const auto found = conf_.find(key);
    if (found == conf_.end()) return std::nullopt;
    std::string text = found->second;
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    for (const char* word : {"1", "true", "t", "yes", "y"}) {
      if (text == word) return true;
    }
    for (const char* word : {"0", "false", "f", "no", "n"}) {
      if (text == word) return false;
    }
    throw Error::usage("--rdzv_conf {}={}: must be true or false.", key, found->second);
  }

  const std::map<std::string, std::string>& conf_;
};

std::string_view without_blanks(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

std::optional<std::string> variable(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
}

}  // namespace

RdzvConf parse_rdzv_conf(std::string_view text) {
  RdzvConf conf;
  bool more = !text.empty();
  while (more) {
    const size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    const size_t equals = entry.find('=');
    const std::string_view key = without_blanks(entry.substr(0, equals));
    const std::string_view value = equals == std::string_view::npos ? "" : without_blanks(entry.substr(equals + 1));
    if (key.empty() || value.empty()) {
      conf.malformed.emplace_back(entry);
    } else if (!conf.values.insert_or_assign(std::string(key), std::string(value)).second) {
      conf.repeated.emplace_back(key);
    }
    more = comma != std::string_view::npos;
    if (more) text.remove_prefix(comma + 1);
  }
  return conf;
}

RdzvSettings read_rdzv_settings(const std::map<std::string, std::string>& conf) { return Reader(conf).read(); }

std::optional<net::Token> find_token(const RdzvSettings& settings, const Environment& environment) {
  if (settings.token_file) return net::Token::from_file(*settings.token_file);
  if (const auto text = variable(environment, "LOCKSTEP_JOB_TOKEN")) return net::Token::from_text(*text, "LOCKSTEP_JOB_TOKEN");
  if (const auto file = variable(environment, "LOCKSTEP_JOB_TOKEN_FILE")) return net::Token::from_file(*file);
  return std::nullopt;
}

}  // namespace lockstep::launch
