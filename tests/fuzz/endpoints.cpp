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

void check_endpoint(std::string_view text, std::optional<uint16_t> default_port) {
  try {
    const Endpoint endpoint = Endpoint::parse(text, default_port, "X");
    LS_CHECK(!endpoint.host.empty(), "no host");
    LS_CHECK(Endpoint::parse(endpoint.text(), {}, "X") == endpoint, "{} is read differently", endpoint.text());
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Usage) throw;
  }
}

}  // namespace

int fuzz_endpoints(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_address(text);
  check_endpoint(text, {});
  check_endpoint(text, 29500);
  return 0;
}
