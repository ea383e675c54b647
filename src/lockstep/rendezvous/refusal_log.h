#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/net/address.h"

#include <map>
#include <optional>
#include <string>

namespace lockstep::rendezvous {

/// Keeps a port scanner or a health check from filling the log: of one host at most kLines lines in kSpan, the last of
/// them with a note that more are left out. Remembers at most kMaxHosts hosts.
class RefusalLog {
 public:
  static constexpr int kLines = 5;
  static constexpr Milliseconds kSpan{60'000};
  static constexpr size_t kMaxHosts = 1024;

  /// The line to print; absent when it is left out.
  std::optional<std::string> pass(const net::Address& host, const std::string& line, Clock::time_point now);

 private:
  struct Seen {
    Clock::time_point since;
    int lines = 0;
  };
  std::map<net::Address, Seen> hosts_;
};

}  // namespace lockstep::rendezvous
