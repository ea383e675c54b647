#include "lockstep/base/cgroup.h"

#include <gtest/gtest.h>

#include <fstream>

#include "lockstep/base/files.h"

namespace lockstep {
namespace {

/// A machine's /proc and /sys with only the files a test needs.
class FakeRoot {
 public:
  FakeRoot& with(const fs::path& path, const std::string& content) {
    fs::create_directories((folder_.path() / path).parent_path());
    std::ofstream(folder_.path() / path) << content;
    return *this;
  }
  std::optional<double> quota() const { return cgroup_cpu_quota(folder_.path()); }

 private:
  TempFolder folder_{"cgroup-test-"};
};

TEST(CgroupCpuQuota, IsAbsentWithoutFilesAndWithoutLimits) {
  FakeRoot root;
  EXPECT_FALSE(root.quota());
  root.with("proc/self/cgroup", "0::/user\n").with("sys/fs/cgroup/user/cpu.max", "max 100000\n");
  EXPECT_FALSE(root.quota());
}

TEST(CgroupCpuQuota, ReadsVersion2) {
  FakeRoot root;
  root.with("proc/self/cgroup", "0::/user/job\n").with("sys/fs/cgroup/user/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(root.quota(), 1.5);
}

TEST(CgroupCpuQuota, TakesTheSmallestOfTheGroupAndItsAncestors) {
  FakeRoot root;
  root.with("proc/self/cgroup", "0::/user/job\n")
      .with("sys/fs/cgroup/user/job/cpu.max", "800000 100000\n")
      .with("sys/fs/cgroup/user/cpu.max", "200000 100000\n");
  EXPECT_EQ(root.quota(), 2.0);
}

TEST(CgroupCpuQuota, ReadsVersion1) {
  FakeRoot root;
  root.with("proc/self/cgroup", "5:memory:/x\n3:cpu,cpuacct:/job\n0::/\n")
      .with("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n")
      .with("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(root.quota(), 3.0);
  root.with("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(root.quota());
}

TEST(CgroupCpuQuota, InAContainerTheMountIsTheGroup) {
  FakeRoot root;
  root.with("proc/self/cgroup", "3:cpu:/docker/0123\n")
      .with("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n")
      .with("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(root.quota(), 0.5);
}

}  // namespace
}  // namespace lockstep
