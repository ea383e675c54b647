// Workers that the kernel kills for lack of memory. LOCKSTEP_OOM_GROUP names a control group with a memory limit, which
// this process enters with all that it starts: scripts/all.d/oom-kill makes one.
#include "launch/run_process.h"

#include "lockstep/launch/own_run.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace lockstep::launch {
namespace {

class OomKill : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* group = std::getenv("LOCKSTEP_OOM_GROUP");
    ASSERT_NE(group, nullptr) << "run scripts/all.d/oom-kill";
    std::ofstream procs(fs::path(group) / "cgroup.procs");
    procs << getpid() << std::endl;
    ASSERT_TRUE(procs.good()) << "this process cannot enter " << group;
  }
  static constexpr const char* kHint = "the kernel killed it for lack of memory (its control group counts an OOM kill)";
};

TEST_F(OomKill, OfAnyProgramIsNamed) {
  RunProcess run({"--nproc_per_node", "2", TEST_WORKER, "1:hog", "0:pause"});
  EXPECT_EQ(run.wait(), 137) << run.err();
  EXPECT_TRUE(contains(run.err(), kHint)) << run.err();
  EXPECT_TRUE(contains(run.err(), "rank 1 (pid")) << run.err();
}

TEST_F(OomKill, OfAnotherSignalIsNotSuspected) {
  RunProcess run({"--nproc_per_node", "2", TEST_WORKER, "1:kill=9", "0:pause"});
  EXPECT_EQ(run.wait(), 137) << run.err();
  EXPECT_FALSE(contains(run.err(), kHint)) << run.err();
}

TEST_F(OomKill, OfAWorkerOfOurOwnIsNamed) {
  const TempFolder folder("launch-test");
  GroupSpec spec;
  spec.command = TEST_WORKER;
  spec.args = {"all:link", "0:hog", "1:pause"};
  spec.num_workers = 2;
  spec.run_folder = folder.path();
  OwnRun job(spec);
  Placement placement;
  placement.world_size = placement.role_world_size = 2;
  job.start(placement);
  while (job.running()) job.step(kPatience, nullptr);
  const RoundOutcome outcome = job.take_outcome();
  ASSERT_TRUE(outcome.cause);
  EXPECT_EQ(outcome.cause->world_rank, 0);
  EXPECT_EQ(outcome.exit_code, 137);
  EXPECT_TRUE(outcome.ends[0].was_out_of_memory);
  EXPECT_FALSE(outcome.ends[1].was_out_of_memory);
}

}  // namespace
}  // namespace lockstep::launch
