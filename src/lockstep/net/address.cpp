#include "lockstep/net/address.h"

#include "lockstep/base/error.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace lockstep::net {
namespace {

constexpr std::array<uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

std::optional<uint16_t> parse_port(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value > 65535) return std::nullopt;
  return static_cast<uint16_t>(value);
}

/// "fe80::1%eth0" too, whether or not this host has such an interface.
bool is_v6_text(std::string_view host) {
  const size_t percent = host.find('%');
  const std::string address(host.substr(0, percent));
  in6_addr unused;
  return ::inet_pton(AF_INET6, address.c_str(), &unused) == 1 &&
         (percent == std::string_view::npos || percent + 1 < host.size());
}

bool is_host_text(std::string_view host) {
  const bool is_plain = std::all_of(host.begin(), host.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
  });
  if (!is_plain || host.empty()) return false;
  return host.find_first_of(":%") == std::string_view::npos || is_v6_text(host);
}

struct HostAndPort {
  std::string_view host;
  std::optional<std::string_view> port;
};

std::optional<HostAndPort> split(std::string_view text) {
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view rest = text.substr(end + 1);
    const std::string_view host = text.substr(1, end - 1);
    if (rest.empty()) return HostAndPort{host, std::nullopt};
    if (!rest.starts_with(':')) return std::nullopt;
    return HostAndPort{host, rest.substr(1)};
  }
  const size_t colon = text.find(':');
  // Two colons without brackets: an IPv6 address and no port.
  if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos) {
    return HostAndPort{text, std::nullopt};
  }
  return HostAndPort{text.substr(0, colon), text.substr(colon + 1)};
}

}  // namespace

Address Address::from_raw(const sockaddr_storage& raw) {
  Address address;
  if (raw.ss_family == AF_INET) {
    const auto& in = reinterpret_cast<const sockaddr_in&>(raw);
    std::memcpy(address.bytes_.data(), &in.sin_addr, 4);
    address.port_ = ntohs(in.sin_port);
  } else if (raw.ss_family == AF_INET6) {
    const auto& in = reinterpret_cast<const sockaddr_in6&>(raw);
    const auto* bytes = reinterpret_cast<const uint8_t*>(&in.sin6_addr);
    address.port_ = ntohs(in.sin6_port);
    if (std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes)) {
      std::copy(bytes + 12, bytes + 16, address.bytes_.begin());
    } else {
      address.v6_ = true;
      address.scope_ = in.sin6_scope_id;
      std::copy(bytes, bytes + 16, address.bytes_.begin());
    }
  }
  return address;
}

std::optional<Address> Address::parse(std::string_view host, uint16_t port) {
  sockaddr_storage raw{};
  std::string text(host);
  auto& v4 = reinterpret_cast<sockaddr_in&>(raw);
  if (::inet_pton(AF_INET, text.c_str(), &v4.sin_addr) == 1) {
    raw.ss_family = AF_INET;
    return from_raw(raw).with_port(port);
  }
  raw = {};
  auto& v6 = reinterpret_cast<sockaddr_in6&>(raw);
  if (const size_t percent = text.find('%'); percent != std::string::npos) {
    const std::string zone = text.substr(percent + 1);
    text.resize(percent);
    const std::optional<uint16_t> number = parse_port(zone);
    v6.sin6_scope_id = number ? *number : ::if_nametoindex(zone.c_str());
    if (v6.sin6_scope_id == 0) return std::nullopt;
  }
  if (::inet_pton(AF_INET6, text.c_str(), &v6.sin6_addr) != 1) return std::nullopt;
  raw.ss_family = AF_INET6;
  return from_raw(raw).with_port(port);
}

Address Address::any_v4(uint16_t port) { return Address().with_port(port); }

Address Address::any_v6(uint16_t port) {
  Address address = any_v4(port);
  address.v6_ = true;
  return address;
}

Address Address::loopback_v4(uint16_t port) {
  Address address = any_v4(port);
  address.bytes_[0] = 127;
  address.bytes_[3] = 1;
  return address;
}

Address Address::loopback_v6(uint16_t port) {
  Address address = any_v6(port);
  address.bytes_[15] = 1;
  return address;
}

Address Address::local_of(int fd) {
  sockaddr_storage raw{};
  socklen_t size = sizeof raw;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&raw), &size) != 0) return {};
  return from_raw(raw);
}

Address Address::peer_of(int fd) {
  sockaddr_storage raw{};
  socklen_t size = sizeof raw;
  if (::getpeername(fd, reinterpret_cast<sockaddr*>(&raw), &size) != 0) return {};
  return from_raw(raw);
}

Address Address::with_port(uint16_t port) const {
  Address address = *this;
  address.port_ = port;
  return address;
}

bool Address::is_loopback() const { return v6_ ? same_host(loopback_v6(0)) : bytes_[0] == 127; }

bool Address::is_any() const {
  return std::all_of(bytes_.begin(), bytes_.end(), [](uint8_t byte) { return byte == 0; });
}

bool Address::same_host(const Address& other) const { return with_port(0) == other.with_port(0); }

std::string Address::host() const {
  std::array<char, INET6_ADDRSTRLEN> text{};
  ::inet_ntop(v6_ ? AF_INET6 : AF_INET, bytes_.data(), text.data(), text.size());
  if (scope_ == 0) return text.data();
  std::array<char, IF_NAMESIZE> name{};
  if (::if_indextoname(scope_, name.data()) == nullptr) return fmt::format("{}%{}", text.data(), scope_);
  return fmt::format("{}%{}", text.data(), name.data());
}

std::string Address::text() const { return Endpoint{host(), port_}.text(); }

Address::Raw Address::raw() const {
  if (v6_) return raw_v6();
  Raw raw{};
  auto& in = reinterpret_cast<sockaddr_in&>(raw.storage);
  in.sin_family = AF_INET;
  in.sin_port = htons(port_);
  std::memcpy(&in.sin_addr, bytes_.data(), 4);
  raw.size = sizeof in;
  return raw;
}

Address::Raw Address::raw_v6() const {
  Raw raw{};
  auto& in = reinterpret_cast<sockaddr_in6&>(raw.storage);
  in.sin6_family = AF_INET6;
  in.sin6_port = htons(port_);
  in.sin6_scope_id = scope_;
  auto* bytes = reinterpret_cast<uint8_t*>(&in.sin6_addr);
  if (v6_) {
    std::copy(bytes_.begin(), bytes_.end(), bytes);
  } else if (!is_any()) {
    std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), bytes);
    std::copy(bytes_.begin(), bytes_.begin() + 4, bytes + 12);
  }
  raw.size = sizeof in;
  return raw;
}

Endpoint::Read Endpoint::read(std::string_view text, std::optional<uint16_t> default_port) {
  const auto parts = split(text);
  if (!parts || !is_host_text(parts->host)) {
    return {.problem = "this is not host:port. Write a host name or a numeric address and a port, IPv6 in brackets: "
                       "node1:29500, 10.0.0.1:29500, [fd00::1]:29500."};
  }
  const std::string host(parts->host);
  if (host.starts_with('-') || host.starts_with('.')) {
    return {.problem = fmt::format("'{}' is no host name: names begin with a letter or a digit. Write node1:29500 or "
                                   "10.0.0.1:29500.", host)};
  }
  if (!parts->port) {
    if (default_port) return {.endpoint = Endpoint{host, *default_port}};
    return {.problem = fmt::format("the port is missing. Write {}.", Endpoint{host, 29500}.text())};
  }
  const std::optional<uint16_t> port = parse_port(*parts->port);
  if (port) return {.endpoint = Endpoint{host, *port}, .has_port = true};
  return {.has_port = true, .problem = fmt::format("'{}' is not a port. Use a number from 1 to 65535, or 0 for any free "
                                                   "one.", *parts->port)};
}

Endpoint Endpoint::parse(std::string_view text, std::optional<uint16_t> default_port, std::string_view origin) {
  Read read = Endpoint::read(text, default_port);
  if (!read.endpoint) throw Error::usage("{} = {}: {}", origin, text, read.problem);
  return *std::move(read.endpoint);
}

std::string Endpoint::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port) : fmt::format("[{}]:{}", host, port);
}

std::vector<Address> local_addresses() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) {
    throw Error::environment("cannot list this host's network interfaces: {}. Say --rdzv_conf is_host=1 on the host that "
                             "listens and is_host=0 on the others.", std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<Address> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage raw{};
    std::memcpy(&raw, entry->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    addresses.push_back(Address::from_raw(raw).with_port(0));
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

}  // namespace lockstep::net
