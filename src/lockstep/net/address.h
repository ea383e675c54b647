#pragma once

#include <sys/socket.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::net {

/// A numeric IPv4 or IPv6 address with a port (TCP or UDP). IPv4 addresses inside IPv6 ("::ffff:10.0.0.1") are folded
/// into IPv4, so that a peer compares equal however its connection was accepted.
class Address {
 public:
  /// What the socket calls take.
  struct Raw {
    sockaddr_storage storage;
    socklen_t size;
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  };

  /// "0.0.0.0:0"
  Address() = default;
  static Address from_raw(const sockaddr_storage& raw);
  /// `host`: "10.0.0.1", "::1", "fe80::1%eth0" (not in brackets). Absent for anything else; names are never looked up.
  static std::optional<Address> parse(std::string_view host, uint16_t port);
  static Address any_v4(uint16_t port);
  static Address any_v6(uint16_t port);
  static Address loopback_v4(uint16_t port);
  static Address loopback_v6(uint16_t port);
  /// Of a socket. "0.0.0.0:0" when it has none.
  static Address local_of(int fd);
  static Address peer_of(int fd);

  bool is_v6() const { return v6_; }
  uint16_t port() const { return port_; }
  Address with_port(uint16_t port) const;
  bool is_loopback() const;
  bool is_any() const;
  /// Equal but for the port.
  bool same_host(const Address& other) const;

  /// "10.0.0.1", "::1": the host alone.
  std::string host() const;
  /// "10.0.0.1:29500", "[::1]:29500".
  std::string text() const;
  Raw raw() const;
  /// For a socket of family AF_INET6: an IPv4 address in its mapped form.
  Raw raw_v6() const;

  auto operator<=>(const Address&) const = default;

 private:
  bool v6_ = false;
  std::array<uint8_t, 16> bytes_{};  ///< network order; IPv4 in the first four
  uint32_t scope_ = 0;               ///< of a link-local IPv6 address: the interface
  uint16_t port_ = 0;
};

/// Where to meet, as a user writes it: a name or a numeric address, and a port.
struct Endpoint {
  std::string host;
  uint16_t port = 0;

  /// "host", "host:port", "10.0.0.1:29500", "[::1]:29500", "::1". Port 0 (any free one) is allowed. Anything else, and a
  /// missing port without a default, is a problem: what is wrong and what to do.
  struct Read;
  static Read read(std::string_view text, std::optional<uint16_t> default_port);
  /// The same; throws Error{Usage} that names `origin` (the option) and the text for a problem.
  static Endpoint parse(std::string_view text, std::optional<uint16_t> default_port, std::string_view origin);
  /// With brackets around an IPv6 address.
  std::string text() const;
  bool operator==(const Endpoint&) const = default;
};

struct Endpoint::Read {
  std::optional<Endpoint> endpoint = {};  ///< absent: see `problem`
  bool has_port = false;                  ///< the text has one
  std::string problem = {};
};

/// Of all interfaces that are up, loopback included; port 0. Throws Error{Environment} when the system does not tell.
std::vector<Address> local_addresses();

}  // namespace lockstep::net
