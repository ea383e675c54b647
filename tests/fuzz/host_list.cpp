#include "fuzz/targets.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/host_list.h"

#include <algorithm>

#include <fmt/ranges.h>

int fuzz_host_list(const uint8_t* data, size_t size) {
  using namespace lockstep;
  constexpr launch::HostListLimits kLimits{.max_hosts = 1000, .max_name = 64, .max_text = 4096};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto hosts = launch::parse_host_list(text, "LIST", kLimits);
    LS_CHECK(hosts.size() <= kLimits.max_hosts && hosts.empty() == text.empty(), "{} hosts", hosts.size());
    for (const std::string& host : hosts) {
      LS_CHECK(!host.empty() && host.size() <= kLimits.max_name && host.find_first_of("[],* ") == std::string::npos,
               "the name '{}'", host);
    }
    LS_CHECK(launch::parse_host_list(fmt::format("{}", fmt::join(hosts, ",")), "LIST") == hosts,
             "the names alone are another list");
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Usage) throw;
  }
  return 0;
}
