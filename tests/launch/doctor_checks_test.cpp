#include "lockstep/launch/doctor_checks.h"

#include "launch/slurm_variables.h"
#include "lockstep/base/files.h"
#include "lockstep/launch/doctor.h"
#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>

namespace lockstep::launch {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

NodeFacts good_node() {
  NodeFacts facts;
  facts.kernel = "Linux 6.1";
  facts.machine = "x86_64";
  facts.glibc = "2.36";
  facts.open_files = {1024, 1'048'576};
  facts.memory_bytes = 64 * kGiB;
  facts.available_bytes = 60 * kGiB;
  facts.online_cpus = 16;
  facts.usable_cpus = 16;
  facts.shm_bytes = 32 * kGiB;
  facts.is_clock_synchronised = true;
  facts.folders.push_back({.path = "/data", .purpose = "current folder", .file_system = "nfs", .is_network = true,
                           .free_bytes = 100 * kGiB, .can_lock = true});
  return facts;
}

/// The findings that are not OK.
Findings bad(const NodeFacts& facts, bool is_for_several_nodes = true) {
  Findings findings = check_node(facts, "0.1.0", is_for_several_nodes);
  std::erase_if(findings, [](const Finding& finding) { return finding.verdict == Verdict::Ok; });
  return findings;
}

TEST(DoctorChecks, AGoodNodeIsOk) {
  EXPECT_EQ(bad(good_node()), Findings{});
  const Findings all = check_node(good_node(), "0.1.0", true);
  EXPECT_EQ(all.size(), 11U);
  EXPECT_EQ(all.front().text, "lockstep 0.1.0, Linux 6.1 (x86_64), glibc 2.36");
  EXPECT_EQ(doctor_exit_code(all), 0);
}

TEST(DoctorChecks, EachTroubleIsNamedWithARemedy) {
  struct Case {
    const char* subject;
    const char* text;
    const char* remedy;
    Verdict verdict;
    std::function<void(NodeFacts&)> change;
  };
  using N = NodeFacts;
  for (const Case& c : std::initializer_list<Case>{
           {"open files", "1024 (at most 1024)", "4096", Verdict::Warn, [](N& n) { n.open_files = {1024, 1024}; }},
           {"processes", "100", "ulimit -u", Verdict::Warn, [](N& n) { n.processes.soft = 100; }},
           {"memory", "1.0 GiB available of 64.0 GiB", "Stop "
                                                       "other", Verdict::Warn, [](N& n) { n.available_bytes = kGiB; }},
           {"memory", "allows 1.0 GiB", "--mem", Verdict::Warn, [](N& n) { n.cgroup_bytes = kGiB; }},
           {"CPUs", "1 of 16", "--cpus-per-task", Verdict::Warn, [](N& n) { n.usable_cpus = 1; }},
           {"CPUs", "quota is 0.5", "--cpus", Verdict::Warn, [](N& n) { n.cpu_quota = 0.5; }},
           {"/dev/shm", "64 MiB", "--shm-size", Verdict::Warn, [](N& n) { n.shm_bytes = kGiB / 16; }},
           {"/dev/shm", "none", "tmpfs", Verdict::Warn, [](N& n) { n.shm_bytes.reset(); }},
           {"clock", "not synchronised", "chrony", Verdict::Warn, [](N& n) { n.is_clock_synchronised = false; }},
           {"GPUs", "8; NVRM 570", "does not exist yet", Verdict::Warn,
            [](N& n) { n.num_gpu_devices = 8, n.gpu_driver = "NVRM 570"; }},
           {"GPUs", "8 device files, but no driver", "kernel "
                                                     "module", Verdict::Warn, [](N& n) { n.num_gpu_devices = 8; }},
           {"GPUs", "no /dev/nvidia<N>", "--gpus-per-node", Verdict::Warn, [](N& n) { n.gpu_driver = "NVRM 570"; }},
           {"current folder", "read-only", "can "
                                           "write", Verdict::Fail, [](N& n) { n.folders[0].problem = "read-only"; }},
           {"current folder", "10 MiB free", "Free "
                                             "some", Verdict::Warn, [](N& n) { n.folders[0].free_bytes = 10 << 20; }},
           {"current folder", "flock does "
                              "not", "local_lock", Verdict::Warn, [](N& n) { n.folders[0].can_lock = false; }},
           {"current folder", "on ext4", "other nodes do not see it", Verdict::Warn,
            [](N& n) { n.folders[0].file_system = "ext4", n.folders[0].is_network = false; }}}) {
    NodeFacts facts = good_node();
    c.change(facts);
    const Findings found = bad(facts);
    ASSERT_EQ(found.size(), 1U) << c.subject << " " << c.text;
    EXPECT_EQ(found[0].verdict, c.verdict) << c.text;
    EXPECT_NE(found[0].subject.find(c.subject), std::string::npos) << finding_text(found[0]);
    EXPECT_NE(found[0].text.find(c.text), std::string::npos) << finding_text(found[0]);
    EXPECT_NE(found[0].remedy.find(c.remedy), std::string::npos) << finding_text(found[0]);
  }
}

TEST(DoctorChecks, ALocalFolderIsFineForOneNode) {
  NodeFacts facts = good_node();
  facts.folders[0].is_network = false;
  EXPECT_EQ(bad(facts, false), Findings{});
}

TEST(DoctorChecks, OutsideSlurmNothingIsSaidAboutIt) {
  EXPECT_EQ(check_slurm({{"PATH", "/bin"}}, good_node(), "", {}), Findings{});
}

TEST(DoctorChecks, AStepIsSummarised) {
  NodeFacts facts = good_node();
  facts.num_gpu_devices = 2;
  const Findings found = check_slurm(step_variables(), facts, "", Milliseconds(60'000));
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(doctor_exit_code(found), 0);
  EXPECT_NE(found[0].text.find("SLURM_STEP_NODELIST=n[0-1]"), std::string::npos);
  EXPECT_NE(found[1].text.find("node rank by SLURM_NODEID (1 here)"), std::string::npos);
  EXPECT_NE(found[2].text.find("works"), std::string::npos);
  EXPECT_NE(found[3].text.find("60 s from SIGTERM to SIGKILL (KillWait)"), std::string::npos);
}

TEST(DoctorChecks, SlurmsTroublesAreNamed) {
  const Findings contradiction = check_slurm(step_variables({{"SLURM_NODEID", "9"}}), good_node(), "", {});
  ASSERT_EQ(contradiction.size(), 1U);
  EXPECT_EQ(contradiction[0].verdict, Verdict::Fail);
  EXPECT_NE(contradiction[0].text.find("SLURM_NODEID=9"), std::string::npos);

  const Findings crowded =
      check_slurm(step_variables({{"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}}), good_node(), "no daemon", {});
  EXPECT_EQ(doctor_exit_code(crowded), 4);
  EXPECT_NE(crowded[1].text.find("--ntasks-per-node=1"), std::string::npos);
  EXPECT_NE(crowded[2].text.find("SLURM_GPUS_ON_NODE=2, but there are 0"), std::string::npos);
  EXPECT_NE(crowded[3].text.find("does not work: no daemon"), std::string::npos);
  EXPECT_NE(crowded[4].text.find("30 s from SIGTERM"), std::string::npos);

  const Findings batch = check_slurm(batch_variables(), good_node(), "", {});
  EXPECT_NE(batch[1].text.find("outside srun"), std::string::npos);
  EXPECT_EQ(batch[1].verdict, Verdict::Warn);
}

TEST(DoctorReport, LinesAndExitCode) {
  const Finding fail{Verdict::Fail, "clock", "stopped", "Wind it up."};
  EXPECT_EQ(finding_text({Verdict::Ok, "CPUs", "16"}), "OK    CPUs: 16\n");
  EXPECT_EQ(finding_text(fail), "FAIL  clock: stopped\n      -> Wind it up.\n");
  EXPECT_EQ(summary_text({fail, {Verdict::Ok, "a", "b"}, {Verdict::Warn, "c", "d"}}), "1 OK, 1 warning, 1 FAIL\n");
  EXPECT_EQ(doctor_exit_code({fail}), 4);
  EXPECT_EQ(doctor_exit_code({{Verdict::Warn, "c", "d"}}), 0);
}

void put(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST(DoctorFacts, ReadsWhatTheSystemSays) {
  const TempFolder root("doctor-facts-test");
  put(root.path() / "proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\nMemAvailable:   1024 kB\n");
  put(root.path() / "proc/driver/nvidia/version", "NVRM version: 570\nGCC\n");
  for (const char* name : {"nvidia0", "nvidia1", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia"}) {
    put(root.path() / "dev" / name, "");
  }
  const NodeFacts facts = gather_node_facts(root.path());
  EXPECT_EQ(facts.memory_bytes, 2048U * 1024);
  EXPECT_EQ(facts.available_bytes, 1024U * 1024);
  EXPECT_EQ(facts.num_gpu_devices, 3);
  EXPECT_EQ(facts.gpu_driver, "NVRM version: 570");
  EXPECT_EQ(facts.shm_bytes, std::nullopt);
  EXPECT_GE(facts.usable_cpus, 1);
  EXPECT_LE(facts.usable_cpus, facts.online_cpus);
  EXPECT_FALSE(facts.glibc.empty());
  EXPECT_TRUE(facts.kernel.starts_with("Linux "));
}

TEST(DoctorFacts, TheSmallestMemoryLimitCounts) {
  const TempFolder root("doctor-cgroup-test");
  EXPECT_EQ(cgroup_memory_limit(root.path()), std::nullopt);
  put(root.path() / "proc/self/cgroup", "0::/a/b\n5:cpu,memory:/m\nnonsense\n");
  EXPECT_EQ(cgroup_memory_limit(root.path()), std::nullopt);
  put(root.path() / "sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(cgroup_memory_limit(root.path()), std::nullopt);
  put(root.path() / "sys/fs/cgroup/a/memory.max", "5000\n");
  EXPECT_EQ(cgroup_memory_limit(root.path()), 5000U);
  put(root.path() / "sys/fs/cgroup/memory/m/memory.limit_in_bytes", "4000\n");
  EXPECT_EQ(cgroup_memory_limit(root.path()), 4000U);
  put(root.path() / "sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(cgroup_memory_limit(root.path()), 5000U);
}

TEST(DoctorFacts, AFolderIsTriedOut) {
  const TempFolder folder("doctor-folder-test");
  const FolderFacts good = gather_folder_facts(folder.path(), "here");
  EXPECT_EQ(good.problem, "");
  EXPECT_TRUE(good.can_lock);
  EXPECT_GT(good.free_bytes, 0U);
  EXPECT_TRUE(fs::is_empty(folder.path())) << "nothing is left behind";

  const FolderFacts missing = gather_folder_facts(folder.path() / "a/b", "output");
  EXPECT_EQ(missing.path, folder.path());
  EXPECT_EQ(missing.problem, "");
  EXPECT_FALSE(fs::exists(folder.path() / "a")) << "nothing is created";

  EXPECT_FALSE(gather_folder_facts("/proc", "proc").problem.empty());
}

TEST(DoctorCommand, HelpAndWrongFlags) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_doctor_command({"--help"}), 0);
  std::fflush(stdout);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("--rdzv_endpoint"), std::string::npos);
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_doctor_command({"--dry_run", "--listen_for", "7"}), 0);
  std::fflush(stdout);
  EXPECT_NE(testing::internal::GetCapturedStdout().find("listen_for"), std::string::npos);
  EXPECT_THROW(run_doctor_command({"--lisen"}), Error);
  EXPECT_THROW(run_doctor_command({"--rdzv_endpoint", "host:0"}), Error);
  EXPECT_THROW(run_doctor_command({"--rdzv_endpoint", "host:port"}), Error);
}

}  // namespace
}  // namespace lockstep::launch
