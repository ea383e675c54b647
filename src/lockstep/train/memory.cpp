#include "lockstep/train/memory.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace lockstep::train {
namespace {

/// The kB value of `key` in a /proc file of "Key:   123 kB" lines, in bytes; 0 if absent.
int64_t kilobytes(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key + ":")) continue;
    std::istringstream words(line.substr(key.size() + 1));
    int64_t value = 0;
    words >> value;
    return value * 1024;
  }
  return 0;
}

/// A cgroup's number, or `otherwise` when there is none ("max" or no file).
int64_t cgroup_number(const char* path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : otherwise;
}

std::string gigabytes(int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

}  // namespace

MemoryUse memory_use() {
  return {kilobytes("/proc/self/status", "VmRSS"), kilobytes("/proc/self/status", "VmHWM")};
}

int64_t available_memory() {
  constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max() / 4;
  const int64_t machine = kilobytes("/proc/meminfo", "MemAvailable");
  const int64_t v2 = cgroup_number("/sys/fs/cgroup/memory.max", kNoLimit) -
                     cgroup_number("/sys/fs/cgroup/memory.current", 0);
  const int64_t v1 = cgroup_number("/sys/fs/cgroup/memory/memory.limit_in_bytes", kNoLimit) -
                     cgroup_number("/sys/fs/cgroup/memory/memory.usage_in_bytes", 0);
  return std::max<int64_t>(0, std::min({machine, v2, v1}));
}

KeepChoice choose_keep(std::optional<bool> wish, int64_t bytes_all, int64_t bytes_input_only, int64_t budget_bytes) {
  if (wish == true) {
    return {model::Keep::InputOnly, fmt::format("recomputed per layer, as asked ({} kept instead of {})",
                                                gigabytes(bytes_input_only), gigabytes(bytes_all))};
  }
  if (wish == false) return {model::Keep::All, fmt::format("all kept, as asked ({})", gigabytes(bytes_all))};
  if (bytes_all <= budget_bytes) {
    return {model::Keep::All, fmt::format("all kept: {} of {} free", gigabytes(bytes_all), gigabytes(budget_bytes))};
  }
  return {model::Keep::InputOnly, fmt::format("recomputed per layer: keeping all would need {}, {} are free",
                                              gigabytes(bytes_all), gigabytes(budget_bytes))};
}

}  // namespace lockstep::train
