#include "lockstep/launch/doctor_facts.h"

#include "lockstep/base/cgroup.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

namespace lockstep::launch {
namespace {

LimitFacts limit(__rlimit_resource resource) {
  rlimit value{};
  LimitFacts facts;
  if (::getrlimit(resource, &value) != 0) return facts;
  if (value.rlim_cur != RLIM_INFINITY) facts.soft = value.rlim_cur;
  if (value.rlim_max != RLIM_INFINITY) facts.hard = value.rlim_max;
  return facts;
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// "MemTotal:  24650000 kB"
uint64_t meminfo_bytes(const fs::path& root, const std::string& name) {
  std::ifstream file(root / "proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string key;
    uint64_t kib = 0;
    if (words >> key >> kib && key == name + ":") return kib * 1024;
  }
  return 0;
}

int count_gpu_devices(const fs::path& root) {
  constexpr std::string_view kPrefix = "nvidia";
  int found = 0;
  std::error_code code;
  for (fs::directory_iterator it(root / "dev", code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    found += name.size() > kPrefix.size() && name.starts_with(kPrefix) &&
             name.find_first_not_of("0123456789", kPrefix.size()) == std::string::npos;
  }
  return found;
}

/// The mask may be wider than cpu_set_t: the kernel refuses a short one.
int affinity_cpus() {
  for (int room = CPU_SETSIZE; room <= (1 << 20); room *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(room);
    cpu_set_t* const set = CPU_ALLOC(room);
    const bool got = ::sched_getaffinity(0, bytes, set) == 0;
    const int cpus = got ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (got || errno != EINVAL) return cpus;
  }
  return 0;
}

std::optional<bool> clock_is_synchronised() {
  timex state{};
  const int result = ::adjtimex(&state);
  if (result < 0) return std::nullopt;
  return result != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

struct FileSystem {
  uint64_t magic;
  const char* name;
  bool is_network;
};
constexpr std::array kFileSystems{
    FileSystem{0x6969, "nfs", true},          FileSystem{0xFE534D42, "smb", true},
    FileSystem{0xFF534D42, "cifs", true},     FileSystem{0x517B, "smb", true},
    FileSystem{0x0BD00BD0, "lustre", true},   FileSystem{0x47504653, "gpfs", true},
    FileSystem{0x19830326, "beegfs", true},   FileSystem{0x00C36400, "ceph", true},
    FileSystem{0x5346414F, "afs", true},      FileSystem{0x01161970, "gfs2", true},
    FileSystem{0x7461636F, "ocfs2", true},    FileSystem{0x65735546, "fuse", true},
    FileSystem{0x01021997, "9p", true},       FileSystem{0xEF53, "ext4", false},
    FileSystem{0x58465342, "xfs", false},     FileSystem{0x9123683E, "btrfs", false},
    FileSystem{0x2FC12FC1, "zfs", false},     FileSystem{0x01021994, "tmpfs", false},
    FileSystem{0x794C7630, "overlay", false}, FileSystem{0x858458F6, "ramfs", false},
};

void describe_file_system(const fs::path& folder, FolderFacts& facts) {
  struct statfs state {};
  if (::statfs(folder.c_str(), &state) != 0) return;
  const auto magic = static_cast<uint64_t>(static_cast<uint32_t>(state.f_type));
  const auto* known = std::find_if(kFileSystems.begin(), kFileSystems.end(),
                                   [&](const FileSystem& system) { return system.magic == magic; });
  facts.file_system = known == kFileSystems.end() ? fmt::format("type {:#x}", magic) : known->name;
  facts.is_network = known != kFileSystems.end() && known->is_network;
  facts.free_bytes = static_cast<uint64_t>(state.f_bavail) * static_cast<uint64_t>(state.f_bsize);
}

/// memory.max: "max" or bytes. memory.limit_in_bytes: a number near 2^63 when there is no limit.
std::optional<uint64_t> limit_in(const fs::path& file) {
  uint64_t bytes = 0;
  if (!(std::ifstream(file) >> bytes) || bytes == 0 || bytes > (uint64_t{1} << 60)) return std::nullopt;
  return bytes;
}

void keep_smallest(std::optional<uint64_t>& smallest, std::optional<uint64_t> other) {
  if (other) smallest = smallest ? std::min(*smallest, *other) : *other;
}

}  // namespace

std::optional<uint64_t> cgroup_memory_limit(const fs::path& root) {
  std::optional<uint64_t> smallest;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_v2 = controllers.empty();
    if (!is_v2 && ("," + controllers + ",").find(",memory,") == std::string::npos) continue;
    fs::path group = root / "sys/fs/cgroup" / (is_v2 ? "" : "memory");
    const char* const name = is_v2 ? "memory.max" : "memory.limit_in_bytes";
    keep_smallest(smallest, limit_in(group / name));
    for (const fs::path& part : fs::path(line.substr(second + 1)).relative_path()) {
      group /= part;
      keep_smallest(smallest, limit_in(group / name));
    }
  }
  return smallest;
}

FolderFacts gather_folder_facts(const fs::path& path, const std::string& purpose) {
  fs::path folder = (fs::absolute(path) / "").lexically_normal().parent_path();
  std::error_code code;
  while (!fs::exists(folder, code) && folder.has_relative_path()) folder = folder.parent_path();
  FolderFacts facts{.path = folder, .purpose = purpose, .file_system = "unknown"};
  try {
    const TempFolder probe(".lockstep-doctor-", folder);
    write_file_atomically(probe.path() / "probe", "first");
    write_file_atomically(probe.path() / "probe", "second");
    if (read_file(probe.path() / "probe", ErrorKind::Environment) != "second") {
      facts.problem = "a file that was replaced still has its old content";
    }
    const fs::path to_lock = probe.path() / "lock";
    fs::create_directory(to_lock);
    facts.can_lock = FolderLock(to_lock).outcome() == FolderLock::Outcome::Locked;
  } catch (const std::exception& problem) {
    facts.problem = problem.what();
  }
  describe_file_system(folder, facts);
  return facts;
}

NodeFacts gather_node_facts(const fs::path& root) {
  NodeFacts facts;
  utsname name{};
  if (::uname(&name) == 0) {
    facts.kernel = fmt::format("{} {}", name.sysname, name.release);
    facts.machine = name.machine;
  }
  facts.glibc = ::gnu_get_libc_version();
  facts.open_files = limit(RLIMIT_NOFILE);
  facts.processes = limit(RLIMIT_NPROC);
  facts.locked_memory = limit(RLIMIT_MEMLOCK);
  facts.core = limit(RLIMIT_CORE);
  facts.memory_bytes = meminfo_bytes(root, "MemTotal");
  facts.available_bytes = meminfo_bytes(root, "MemAvailable");
  facts.cgroup_bytes = cgroup_memory_limit(root);
  facts.online_cpus = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  facts.usable_cpus = affinity_cpus();
  facts.cpu_quota = cgroup_cpu_quota(root);
  struct statvfs shm {};
  if (::statvfs((root / "dev/shm").c_str(), &shm) == 0) {
    facts.shm_bytes = static_cast<uint64_t>(shm.f_blocks) * static_cast<uint64_t>(shm.f_frsize);
  }
  facts.is_clock_synchronised = clock_is_synchronised();
  facts.num_gpu_devices = count_gpu_devices(root);
  facts.gpu_driver = first_line(root / "proc/driver/nvidia/version");
  return facts;
}

}  // namespace lockstep::launch
