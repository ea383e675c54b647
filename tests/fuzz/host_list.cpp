#include "fuzz/slurm_targets.h"

#include "lockstep/base/error.h"
#include "lockstep/launch/host_list.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

int fuzz_host_list(const uint8_t* data, size_t size) {
  constexpr lockstep::launch::HostListLimits kLimits{.max_hosts = 1000, .max_name = 64, .max_text = 4096};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const auto hosts = lockstep::launch::parse_host_list(text, "LIST", kLimits);
    const bool holds = hosts.size() <= kLimits.max_hosts && hosts.empty() == text.empty() &&
                       std::all_of(hosts.begin(), hosts.end(), [](const std::string& host) {
                         return !host.empty() && host.size() <= kLimits.max_name &&
                                host.find_first_of("[],* ") == std::string::npos;
                       });
    if (!holds) std::abort();
  } catch (const lockstep::Error& error) {
    if (error.kind() != lockstep::ErrorKind::Usage) std::abort();
  }
  return 0;
}
