#include "lockstep/base/cgroup.h"

#include <algorithm>
#include <fstream>
#include <string>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// One line of /proc/self/cgroup: "hierarchy:controllers:path"; no controllers in version 2.
struct Membership {
  std::string controllers;
  std::string path;
};

std::optional<Membership> parse_membership(const std::string& line) {
  const size_t first = line.find(':');
  if (first == std::string::npos) return std::nullopt;
  const size_t second = line.find(':', first + 1);
  if (second == std::string::npos) return std::nullopt;
  return Membership{line.substr(first + 1, second - first - 1), line.substr(second + 1)};
}

bool lists_cpu(const std::string& controllers) { return ("," + controllers + ",").find(",cpu,") != std::string::npos; }

/// cpu.max: "max 100000" or "150000 100000".
std::optional<double> quota_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return std::nullopt;
  return std::strtod(quota.c_str(), nullptr) / period;
}

/// cpu.cfs_quota_us is -1 without a limit.
std::optional<double> quota_v1(const fs::path& group) {
  double quota = -1;
  double period = 0;
  std::ifstream(group / "cpu.cfs_quota_us") >> quota;
  std::ifstream(group / "cpu.cfs_period_us") >> period;
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

void keep_smaller(std::optional<double>& smallest, std::optional<double> other) {
  if (other && *other > 0) smallest = smallest ? std::min(*smallest, *other) : *other;
}

/// The group and all above it, up to where the hierarchy is mounted. In a container the path may be the host's and
/// not exist here; then the mount itself is the container's group.
template <class Read>
std::optional<double> smallest_on_path(const fs::path& mount, const std::string& path, Read read) {
  std::optional<double> smallest = read(mount);
  fs::path group = mount;
  for (const fs::path& part : fs::path(path).relative_path()) {
    group /= part;
    keep_smaller(smallest, read(group));
  }
  return smallest;
}

}  // namespace

std::optional<double> cgroup_cpu_quota(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::optional<double> smallest;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto membership = parse_membership(line);
    if (!membership) continue;
    if (membership->controllers.empty()) {
      keep_smaller(smallest, smallest_on_path(mounts, membership->path, quota_v2));
    } else if (lists_cpu(membership->controllers)) {
      keep_smaller(smallest, smallest_on_path(mounts / membership->controllers, membership->path, quota_v1));
      keep_smaller(smallest, smallest_on_path(mounts / "cpu", membership->path, quota_v1));
    }
  }
  return smallest;
}

}  // namespace lockstep
