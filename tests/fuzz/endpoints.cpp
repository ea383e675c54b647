#include "fuzz/targets.h"

#include "lockstep/base/error.h"
#include "lockstep/net/address.h"

namespace {

using namespace lockstep;
using net::Address;
using net::Endpoint;

void check_address(std::string_view text) {
  const auto address = Address::parse(text, 7);
  if (!address) return;
  LS_CHECK(Address::parse(address->host(), 7) == address, "{} is read differently", address->host());
  LS_CHECK(Address::from_raw(address->raw().storage) == *address, "{} changes in a socket call", address->host());
  LS_CHECK(address->is_any() || Address::from_raw(address->raw_v6().storage) == *address, "{} changes in a call of IPv6",
           address->host());
  LS_CHECK(address->same_host(address->with_port(9)), "{} is another host on another port", address->host());
}

bool is_v6(const std::string& host) {
  const auto address = Address::parse(host.substr(0, host.find('%')), 0);
  return address && host.find(':') != std::string::npos;
}

/// What every option that names a place is read by.
void check_endpoint(std::string_view text, std::optional<uint16_t> default_port) {
  const Endpoint::Read read = Endpoint::read(text, default_port);
  LS_CHECK(read.endpoint.has_value() == read.problem.empty(), "'{}' has a value and a problem, or neither", read.problem);
  if (!read.endpoint) return;
  const Endpoint& endpoint = *read.endpoint;
  LS_CHECK(!endpoint.host.empty() && endpoint.host.find_first_of("[] ") == std::string::npos, "the host '{}'", endpoint.host);
  LS_CHECK(endpoint.host.find_first_of(":%") == std::string::npos || is_v6(endpoint.host), "the host '{}'", endpoint.host);
  LS_CHECK(read.has_port || endpoint.port == default_port, "port {} is from nowhere", endpoint.port);
  const Endpoint::Read again = Endpoint::read(endpoint.text(), {});
  LS_CHECK(again.endpoint == endpoint && again.has_port, "{} is read differently", endpoint.text());
  LS_CHECK(Endpoint::parse(endpoint.text(), {}, "X") == endpoint, "{} is parsed differently", endpoint.text());
}

}  // namespace

int fuzz_endpoints(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_address(text);
  check_endpoint(text, {});
  check_endpoint(text, 29500);
  return 0;
}
