#pragma once

#include <sys/resource.h>

namespace lockstep::launch {

/// While it lives, this process may open as many files as its hard limit allows: a meeting of many nodes and the workers'
/// store need a descriptor per connection. The soft limit is as before afterwards. Best effort.
class OpenFileLimit {
 public:
  OpenFileLimit();
  OpenFileLimit(const OpenFileLimit&) = delete;
  OpenFileLimit& operator=(const OpenFileLimit&) = delete;
  ~OpenFileLimit();

  /// What workers are given: programs that use select() fail with descriptors above 1023, which a low soft limit prevents.
  const rlimit& before() const { return before_; }

 private:
  rlimit before_{};
};

}  // namespace lockstep::launch
