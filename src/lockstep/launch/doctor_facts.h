#pragma once

#include "lockstep/launch/worker_environment.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::launch {

/// Absent: no limit.
struct LimitFacts {
  std::optional<uint64_t> soft = {};
  std::optional<uint64_t> hard = {};
};

struct FolderFacts {
  fs::path path;             ///< the folder, or the nearest one above it that exists
  std::string purpose;       ///< "current folder", "--output_dir"
  std::string file_system;   ///< "ext4", "nfs", or the number that statfs gives
  bool is_network = false;   ///< other nodes may see it
  uint64_t free_bytes = 0;
  std::string problem = {};  ///< why a file cannot be written, replaced or read back there; empty: it can
  bool can_lock = false;     ///< flock works
};

/// What this node says about itself.
struct NodeFacts {
  std::string kernel;
  std::string machine;
  std::string glibc;
  LimitFacts open_files = {};
  LimitFacts processes = {};
  LimitFacts locked_memory = {};  ///< bytes
  LimitFacts core = {};           ///< bytes
  uint64_t memory_bytes = 0;
  uint64_t available_bytes = 0;
  std::optional<uint64_t> cgroup_bytes = {};  ///< the smallest limit over the control group and its ancestors
  int online_cpus = 0;
  int usable_cpus = 0;                        ///< in the affinity mask
  std::optional<double> cpu_quota = {};       ///< in cores
  std::optional<uint64_t> shm_bytes = {};     ///< size of /dev/shm
  std::optional<bool> is_clock_synchronised = {};  ///< by NTP or alike, as the kernel sees it
  int num_gpu_devices = 0;                    ///< /dev/nvidia0 ...
  std::string gpu_driver = {};                ///< version line of /proc/driver/nvidia; empty without one
  std::vector<FolderFacts> folders = {};
};

/// Reads /proc, /sys and /dev; `root` stands before them, so that tests can bring their own. No folders.
NodeFacts gather_node_facts(const fs::path& root = "/");
/// Writes, replaces, reads back and removes a small file, and locks a folder, all in a hidden folder of its own.
FolderFacts gather_folder_facts(const fs::path& path, const std::string& purpose);

/// The memory limit of this process's control group, versions 1 and 2, as base/cgroup.h for CPUs.
std::optional<uint64_t> cgroup_memory_limit(const fs::path& root);

}  // namespace lockstep::launch
