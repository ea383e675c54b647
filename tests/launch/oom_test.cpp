#include "lockstep/launch/oom.h"

#include <gtest/gtest.h>

namespace lockstep::launch {
namespace {

/// A machine's files below a folder.
struct Machine {
  TempFolder folder{"launch-test"};
  void write(const std::string& path, const std::string& text) const {
    fs::create_directories((folder.path() / path).parent_path());
    write_file_atomically(folder.path() / path, text);
  }
  const fs::path& root() const { return folder.path(); }
};

TEST(OomKills, AreReadFromBothVersionsOfControlGroups) {
  const Machine v2;
  v2.write("proc/self/cgroup", "0::/slice/job\n");
  v2.write("sys/fs/cgroup/slice/job/memory.events", "low 0\nhigh 3\nmax 9\noom 4\noom_kill 2\n");
  EXPECT_EQ(oom_kills(v2.root()), 2);

  const Machine v1;
  v1.write("proc/self/cgroup", "9:cpu,cpuacct:/x\n8:memory:/job\n");
  v1.write("sys/fs/cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_EQ(oom_kills(v1.root()), 5);

  const Machine container;  // the path is the host's
  container.write("proc/self/cgroup", "0::/host/path\n");
  container.write("sys/fs/cgroup/memory.events", "oom_kill 7\n");
  EXPECT_EQ(oom_kills(container.root()), 7);

  EXPECT_EQ(oom_kills(Machine().root()), std::nullopt);
}

TEST(OomCounter, TellsARise) {
  const Machine machine;
  machine.write("proc/self/cgroup", "0::/\n");
  machine.write("sys/fs/cgroup/memory.events", "oom_kill 1\n");
  const OomCounter counter(machine.root());
  EXPECT_FALSE(counter.has_risen());
  machine.write("sys/fs/cgroup/memory.events", "oom_kill 2\n");
  EXPECT_TRUE(counter.has_risen());
  EXPECT_FALSE(OomCounter(Machine().root()).has_risen());
}

}  // namespace
}  // namespace lockstep::launch
