#include "lockstep/rendezvous/hosting.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <cctype>

namespace lockstep::rendezvous {
namespace {

bool equal_but_for_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

std::string_view first_label(std::string_view name) { return name.substr(0, name.find('.')); }

/// "n1" names "n1.cluster" and the reverse; "n1.a" does not name "n1.b".
bool same_name(std::string_view a, std::string_view b) {
  const bool one_is_short = a.find('.') == std::string_view::npos || b.find('.') == std::string_view::npos;
  return equal_but_for_case(a, b) || (one_is_short && equal_but_for_case(first_label(a), first_label(b)));
}

}  // namespace

HostAnswer should_host(const HostQuestion& question) {
  if (question.is_host) {
    return {*question.is_host, fmt::format("is_host={} was given", *question.is_host ? 1 : 0)};
  }
  for (const net::Address& address : question.resolved.addresses) {
    if (address.is_loopback() || address.is_any()) return {true, fmt::format("{} is this host", address.host())};
    const auto same = [&](const net::Address& local) { return local.same_host(address); };
    if (std::any_of(question.local_addresses.begin(), question.local_addresses.end(), same)) {
      return {true, fmt::format("{} is an address of this host", address.host())};
    }
  }
  if (question.resolved.addresses.empty()) {
    if (equal_but_for_case(question.endpoint.host, "localhost") || same_name(question.endpoint.host, question.host_name)) {
      return {true, fmt::format("'{}' is this host's name ({})", question.endpoint.host, question.resolved.problem)};
    }
    return {false, question.resolved.problem};
  }
  return {false, fmt::format("{} is no address of this host", question.resolved.addresses.front().host())};
}

std::optional<net::ListenSocket> try_to_host(const HostQuestion& question) {
  return net::ListenSocket::open_if_free(std::nullopt, question.endpoint.port);
}

}  // namespace lockstep::rendezvous
