#pragma once

#include <filesystem>
#include <optional>

namespace lockstep {

/// The CPU quota of this process's control group in cores (1.5 = one and a half), the smallest over the group and
/// its ancestors; nothing when there is no limit. Reads version 2 (cpu.max) and version 1 (cpu.cfs_quota_us,
/// cpu.cfs_period_us). `root` stands before /proc/self/cgroup and /sys/fs/cgroup, so that tests can bring their own.
/// Files that are absent or unreadable count as "no limit".
std::optional<double> cgroup_cpu_quota(const std::filesystem::path& root);

}  // namespace lockstep
