#pragma once

#include "lockstep/model/decoder.h"

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::train {

struct MemoryUse {
  int64_t resident_bytes = 0;
  int64_t peak_resident_bytes = 0;
};
/// Of this process, from /proc/self/status.
MemoryUse memory_use();

/// Bytes this node can still give out: MemAvailable, cut by the cgroup's limit (v1 and v2).
int64_t available_memory();

struct KeepChoice {
  model::Keep keep = model::Keep::All;
  std::string reason;  ///< one line for the start-up report
};
/// Which activations a layer keeps. `wish`: --gradient_checkpointing (true: recompute, false: keep, unset: recompute
/// only if keeping would need more than `budget_bytes` on this process). The bits do not depend on it.
KeepChoice choose_keep(std::optional<bool> wish, int64_t bytes_all, int64_t bytes_input_only, int64_t budget_bytes);

}  // namespace lockstep::train
