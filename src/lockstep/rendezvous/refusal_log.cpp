#include "lockstep/rendezvous/refusal_log.h"

namespace lockstep::rendezvous {

std::optional<std::string> RefusalLog::pass(const net::Address& host, const std::string& line, Clock::time_point now) {
  std::erase_if(hosts_, [&](const auto& entry) { return now - entry.second.since >= kSpan; });
  const net::Address key = host.with_port(0);
  if (hosts_.size() >= kMaxHosts && !hosts_.contains(key)) return std::nullopt;
  Seen& seen = hosts_.try_emplace(key, Seen{now}).first->second;
  ++seen.lines;
  if (seen.lines > kLines) return std::nullopt;
  return seen.lines < kLines ? line : line + " (more lines about this host are left out for a minute)";
}

}  // namespace lockstep::rendezvous
