#include "lockstep/launch/oom.h"

#include <fstream>
#include <string>

namespace lockstep::launch {

namespace {

/// The number after `key` in a file of "key number" lines.
std::optional<int64_t> find_count(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  int64_t count = 0;
  while (file >> word >> count) {
    if (word == key) return count;
  }
  return std::nullopt;
}

/// In a container the path may be the host's and not exist here; then the mount itself is the container's group.
std::optional<int64_t> count_in(const fs::path& mount, const std::string& group, const std::string& file) {
  const auto own = find_count(mount / fs::path(group).relative_path() / file, "oom_kill");
  return own ? own : find_count(mount / file, "oom_kill");
}

}  // namespace

std::optional<int64_t> oom_kills(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream file(root / "proc/self/cgroup");
  // "hierarchy:controllers:path"; no controllers in version 2.
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    std::optional<int64_t> count;
    if (controllers == ",,") count = count_in(mounts, group, "memory.events");
    if (controllers.find(",memory,") != std::string::npos) {
      count = count_in(mounts / "memory", group, "memory.oom_control");
    }
    if (count) return count;
  }
  return std::nullopt;
}

}  // namespace lockstep::launch
