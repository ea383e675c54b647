#include "lockstep/launch/doctor_network.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/doctor_clock.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace lockstep::launch {
namespace {

bool is_local(const net::Address& address, const std::vector<net::Address>& local) {
  return address.is_loopback() ||
         std::any_of(local.begin(), local.end(), [&](const net::Address& own) { return own.same_host(address); });
}

std::string hosts_text(const std::vector<net::Address>& addresses) {
  std::vector<std::string> texts;
  for (const net::Address& address : addresses) texts.push_back(address.host());
  return fmt::format("{}", fmt::join(texts, ", "));
}

Finding name_failure(const std::string& subject, const std::string& name, const net::Resolved& resolved,
                     bool is_fatal) {
  const Verdict verdict = is_fatal ? Verdict::Fail : Verdict::Warn;
  switch (resolved.outcome) {
    case net::Resolved::Outcome::UnknownName:
      return {verdict, subject, fmt::format("there is no such name as {}", name),
              fmt::format("Add it to the name server or to /etc/hosts{}.", is_fatal ? ", or give a numeric "
                                                                                      "address" : "")};
    case net::Resolved::Outcome::NoAnswer:
      return {verdict, subject, fmt::format("the name servers gave no answer about {} in time", name),
              "Check the name servers in /etc/resolv.conf, or give a numeric address."};
    default:
      return {verdict, subject, fmt::format("{}: {}", name, resolved.problem), "Check /etc/resolv.conf and "
                                                                               "/etc/hosts."};
  }
}

net::Connected connect_to(const std::vector<net::Address>& targets, Milliseconds longest) {
  net::EventLoop loop;
  std::optional<net::Connected> result;
  const net::Connector connector(loop, targets, longest,
                                 [&](net::Connected connected) { result = std::move(connected); });
  while (!result) loop.run_once(longest);
  return std::move(*result);
}

struct Timed {
  net::Connected connected;
  double milliseconds = 0;
};
Timed connect_timed(const std::vector<net::Address>& targets, Milliseconds longest) {
  const auto started = Clock::now();
  Timed timed{.connected = connect_to(targets, longest)};
  timed.milliseconds = 1e3 * seconds_since(started);
  return timed;
}

/// Shown as this node's own; not worth a connection each on a host with hundreds.
constexpr size_t kMostAddresses = 16;

void add_clock_findings(const ClockVisit& visit, const net::Endpoint& endpoint, Findings& findings) {
  if (!visit.answer) {
    findings.push_back({Verdict::Ok, "clock of " + endpoint.host,
                        "not compared: what listens there is not `lockstep doctor --listen`"});
    return;
  }
  const std::string& host = visit.answer->host;
  findings.push_back({Verdict::Ok, "the other node", fmt::format("{} answers with lockstep "
                                                                 "{}", host, visit.answer->version)});
  findings.push_back(clock_finding(host, static_cast<double>(visit.difference->ahead_ns) * 1e-6,
                                   static_cast<double>(visit.difference->uncertainty_ns) * 1e-6));
  findings.push_back(visit.is_udp_answered
                         ? Finding{Verdict::Ok, "UDP", fmt::format("{} answers", endpoint.text())}
                         : Finding{Verdict::Warn, "UDP", fmt::format("no answer from {}", endpoint.text()),
                                   "Let UDP pass on this port as well: beats then survive heavy packet loss. Without "
                                   "it they go over TCP."});
}

/// If the endpoint is this node and its port is free, this check listens there.
void connect_and_ask(const net::Endpoint& endpoint, const std::vector<net::Address>& targets, Milliseconds longest,
                     bool is_here, Findings& findings) {
  std::optional<net::ListenSocket> listening;
  if (is_here) listening = net::ListenSocket::open_if_free(std::nullopt, endpoint.port);
  Timed timed = connect_timed(targets, longest);
  const std::string subject = "connection to " + endpoint.text();
  if (timed.connected.failure != net::ConnectFailure::None) {
    findings.push_back(connect_failure_finding(endpoint, timed.connected));
    return;
  }
  findings.push_back({Verdict::Ok, subject,
                      fmt::format("{} from {} in {:.1f} "
                                  "ms{}", timed.connected.peer.text(), timed.connected.local.host(),
                                  timed.milliseconds,
                                  listening ? " (this node; this check listened there)"
                                  : is_here ? " (this node; another program listens there)"
                                            : "")});
  if (listening) return;
  const net::Address peer = timed.connected.peer;
  add_clock_findings(ask_clock(std::move(timed.connected.fd), peer, Deadline::in(longest)), endpoint, findings);
}

}  // namespace

Findings check_own_name(const std::string& host_name, const std::vector<net::Address>& local, Milliseconds longest,
                        const net::Lookup& lookup) {
  Findings findings;
  std::vector<net::Address> reachable;
  std::copy_if(local.begin(), local.end(), std::back_inserter(reachable),
               [](const net::Address& address) { return !address.is_loopback(); });
  if (reachable.empty()) {
    findings.push_back({Verdict::Warn, "addresses", "only loopback",
                        "Bring a network interface up: other nodes cannot reach this one."});
  } else {
    findings.push_back({Verdict::Ok, "addresses", hosts_text(reachable)});
  }
  const net::Resolved resolved = net::resolve({host_name, 0}, Deadline::in(longest), lookup);
  if (resolved.outcome != net::Resolved::Outcome::Found) {
    findings.push_back(name_failure("own name", host_name, resolved, false));
    return findings;
  }
  Finding finding{Verdict::Ok, "own name", fmt::format("{} is {}", host_name, hosts_text(resolved.addresses))};
  const auto is_own = [&](const net::Address& address) { return is_local(address, local); };
  const auto is_loopback = [](const net::Address& address) { return address.is_loopback(); };
  if (!std::all_of(resolved.addresses.begin(), resolved.addresses.end(), is_own)) {
    finding.verdict = Verdict::Warn;
    finding.text += ", which is not all this node's own";
    finding.remedy = "Correct the name server or /etc/hosts. lockstep takes addresses from connections; programs that "
                     "ask for their own name do not.";
  } else if (!reachable.empty() && std::all_of(resolved.addresses.begin(), resolved.addresses.end(), is_loopback)) {
    finding.verdict = Verdict::Warn;
    finding.text += ", a loopback address";
    finding.remedy = fmt::format("Do not use this name as the endpoint of several nodes; give {}, or remove the line "
                                 "with {} from /etc/hosts.",
                                 reachable.front().host(), host_name);
  }
  findings.push_back(std::move(finding));
  return findings;
}

Findings check_local_ports(const std::vector<net::Address>& local, Milliseconds longest) {
  Findings findings;
  std::optional<net::ListenSocket> listening;
  try {
    listening = net::ListenSocket::open(std::nullopt, 0);
  } catch (const Error& problem) {
    return {{Verdict::Fail, "listening", problem.what(), "lockstep needs to listen on a TCP port; see the system's "
                                                         "words."}};
  }
  std::vector<net::Address> targets = {net::Address::loopback_v4(0)};
  for (const net::Address& address : local) {
    const bool is_link_local = address.host().starts_with("fe80:");  // agents do not meet there
    if (!address.is_loopback() && !is_link_local && targets.size() < kMostAddresses) targets.push_back(address);
  }
  std::vector<std::string> answered;
  for (const net::Address& target : targets) {
    const net::Connected connected = connect_to({target.with_port(listening->port())}, longest);
    if (connected.failure == net::ConnectFailure::None) {
      answered.push_back(target.host());
      continue;
    }
    findings.push_back({target.is_loopback() ? Verdict::Fail : Verdict::Warn, "own port",
                        fmt::format("this node cannot connect to itself: {}", connected.problem),
                        "Allow it in the local firewall: processes of a node meet at its own address."});
  }
  if (!answered.empty()) {
    findings.insert(findings.begin(), {Verdict::Ok, "own port", fmt::format("port {} answers at {}", listening->port(),
                                                                            fmt::join(answered, ", "))});
  }
  return findings;
}

Findings check_endpoint(const net::Endpoint& endpoint, const std::vector<net::Address>& local, Milliseconds longest,
                        const net::Lookup& lookup) {
  Findings findings;
  const auto started = Clock::now();
  const net::Resolved resolved = net::resolve(endpoint, Deadline::in(longest), lookup);
  if (resolved.outcome != net::Resolved::Outcome::Found) {
    findings.push_back(name_failure("endpoint " + endpoint.text(), endpoint.host, resolved, true));
    return findings;
  }
  const bool is_here = std::any_of(resolved.addresses.begin(), resolved.addresses.end(),
                                   [&](const net::Address& address) { return is_local(address, local); });
  const bool is_numeric = net::Address::parse(endpoint.host, 0).has_value();
  Finding name{Verdict::Ok, "endpoint " + endpoint.text(),
               is_numeric ? "a numeric address"
                          : fmt::format("{} is {} (looked up in {:.1f} "
                                        "ms)", endpoint.host, hosts_text(resolved.addresses),
                                        1e3 * seconds_since(started))};
  if (is_here) name.text += "; this node";
  const bool is_loopback = std::all_of(resolved.addresses.begin(), resolved.addresses.end(),
                                       [](const net::Address& address) { return address.is_loopback(); });
  if (is_loopback) {
    name.verdict = Verdict::Warn;
    name.remedy = "A loopback address: every node would meet itself. Good for one node only.";
  }
  findings.push_back(std::move(name));
  connect_and_ask(endpoint, resolved.addresses, longest, is_here, findings);
  return findings;
}

Finding connect_failure_finding(const net::Endpoint& endpoint, const net::Connected& result) {
  Finding finding{Verdict::Fail, "connection to " + endpoint.text(), {}};
  switch (result.failure) {
    case net::ConnectFailure::Refused:
      finding.text = result.problem + ". The host answers, but nothing listens there";
      finding.remedy = fmt::format("Start `lockstep doctor --listen --rdzv_endpoint {}` on {} and try again. If it "
                                   "listens already, a firewall rejects the port.",
                                   endpoint.text(), endpoint.host);
      break;
    case net::ConnectFailure::NoAnswer:
      finding.text = result.problem;
      finding.remedy = fmt::format("The host is down, or a firewall drops TCP port {}: open it on {} and on the way.",
                                   endpoint.port, endpoint.host);
      break;
    case net::ConnectFailure::Unreachable:
      finding.text = result.problem;
      finding.remedy = "There is no route, or the host is off: check the address, `ip route get ADDRESS` and the "
                       "cable.";
      break;
    default:
      finding.text = result.problem;
      finding.remedy = "See the system's words.";
  }
  return finding;
}

Finding clock_finding(const std::string& host, double ahead_ms, double uncertainty_ms) {
  constexpr double kLargeMs = 1'000;
  Finding finding{Verdict::Ok, "clock",
                  fmt::format("{}'s is {:.1f} ms {} (within {:.1f} ms)", host, std::abs(ahead_ms),
                              ahead_ms < 0 ? "behind" : "ahead", uncertainty_ms)};
  if (std::abs(ahead_ms) - uncertainty_ms > kLargeMs) {
    finding.verdict = Verdict::Warn;
    finding.remedy = "Run chrony or systemd-timesyncd on both nodes. lockstep itself does not compare clocks; log "
                     "lines do, and munge refuses more than 5 minutes.";
  }
  return finding;
}

}  // namespace lockstep::launch
