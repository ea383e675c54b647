#pragma once

#include "lockstep/base/files.h"

#include <cstdint>
#include <optional>

namespace lockstep::launch {

/// How many processes the kernel has killed for lack of memory in this process's control group (memory.events of
/// version 2, memory.oom_control of version 1); absent where that cannot be read. `root` stands before /proc and /sys.
std::optional<int64_t> oom_kills(const fs::path& root);

/// Tells whether the kernel has killed for lack of memory since it was made.
class OomCounter {
 public:
  explicit OomCounter(fs::path root = "/") : root_(std::move(root)), before_(oom_kills(root_)) {}
  bool has_risen() const {
    const std::optional<int64_t> now = oom_kills(root_);
    return before_ && now && *now > *before_;
  }

 private:
  fs::path root_;
  std::optional<int64_t> before_;
};

}  // namespace lockstep::launch
