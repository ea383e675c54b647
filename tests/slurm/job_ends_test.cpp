// How jobs end on a real SLURM; run by with_cluster.sh (two nodes n0 and n1, KillWait 6 s). SlurmJobsSlow is run by
// scripts/all.d.
#include "job_bed.h"

#include <fmt/format.h>

#include <csignal>

namespace lockstep::launch {
namespace {

constexpr const char* kStep = "srun --kill-on-bad-exit=0 --wait=60 lockstep run --nproc_per_node 2 ";
const std::string kCluster = "\"$LOCKSTEP_SHARED/slurm/cluster\" ";

/// With the options of `lockstep slurm`, and as torchrun's users type it.
TEST_F(SlurmJobs, AWorkersExitCodeIsThatOfSrun) {
  for (const char* options : {"", "--kill-on-bad-exit=0 --wait=60 "}) {
    SCOPED_TRACE(options);
    const auto started = Clock::now();
    const Output output = run(fmt::format("srun --nodes=2 --ntasks-per-node=1 {}lockstep run --nproc_per_node 2 "
                                          "bash -c '[ $RANK != 2 ] || exit 7; exec sleep 100'", options));
    EXPECT_LT(seconds_since(started), 5);
    EXPECT_EQ(output.exit_code, 7) << output.text;
    EXPECT_EQ(count(output.text, "lockstep: rank 2 (pid "), 1) << "on n1: " << output.text;
    EXPECT_EQ(count(output.text, ") failed first: exit code 7"), 1) << "on n1: " << output.text;
    EXPECT_EQ(count(output.text, "lockstep: the job failed on n1: rank 2 (pid "), 1) << "on n0: " << output.text;
    EXPECT_TRUE(await_no_process(Milliseconds(1'000)));
  }
}

TEST_F(SlurmJobs, CancellingReachesTheWorkers) {
  const std::string job = submit("", kStep + std::string("./long"));
  ASSERT_TRUE(await_workers()) << output();
  const auto cancelled = Clock::now();
  run("scancel " + job);
  EXPECT_TRUE(await_no_process(Milliseconds(2'000))) << output();
  EXPECT_LT(seconds_since(cancelled), 2);
  await_end(job);
  EXPECT_TRUE(has_all("term"));
  EXPECT_FALSE(has_token_file());
}

TEST_F(SlurmJobs, DeafWorkersAreGoneBeforeSlurmKillsTheirAgents) {
  const std::string job = submit("", kStep + std::string("./deaf"));
  ASSERT_TRUE(await_workers()) << output();
  const auto cancelled = Clock::now();
  run("scancel " + job);
  EXPECT_TRUE(await_no_process(Milliseconds(6'000))) << output();
  EXPECT_LT(seconds_since(cancelled), 6);
  const std::string text = await_end(job);
  EXPECT_TRUE(has_all("term"));
  for (const char* ranks : {"ranks 0-1", "ranks 2-3"}) {
    EXPECT_EQ(count(text, fmt::format("lockstep: stopped by SIGTERM: {} did not stop in time", ranks)), 1) << text;
  }
}

TEST_F(SlurmJobs, AWarningSignalIsPassedOnAndTheJobGoesOn) {
  const std::string job = submit("", kStep + std::string("./long"));
  ASSERT_TRUE(await_workers()) << output();
  run("scancel --signal=USR1 " + job);
  EXPECT_TRUE(wait_until(Milliseconds(5'000), [&] { return has_all("usr1"); })) << output();
  run("touch stop");
  const std::string text = await_end(job);
  EXPECT_EQ(state_of(job), "COMPLETED 0:0") << text;
  EXPECT_EQ(count(text, "SIGUSR1: passed on to the workers, which go on"), 2) << text;
}

TEST_F(SlurmJobs, ARequeuedJobStartsAfresh) {
  const std::string job = submit("--requeue", kStep + std::string("./long"));
  ASSERT_TRUE(await_workers()) << output();
  run("rm pid.*; scontrol requeue " + job);
  ASSERT_TRUE(await_workers()) << "a requeued job starts 11 s later here\n" << output();
  run("touch stop");
  const std::string text = await_end(job);
  EXPECT_EQ(state_of(job), "COMPLETED 0:0") << text;
  for (const char* run_id : {".0\n", ".0.1\n"}) EXPECT_EQ(count(text, " of run " + job + run_id), 4) << text;
  EXPECT_EQ(count(text, "SLURM_RESTART_COUNT"), 1) << text;
  EXPECT_FALSE(has_token_file());
}

TEST_F(SlurmJobs, AJobEndsWithANodeThatGoesDown) {
  const std::string job = submit("--no-requeue", kStep + std::string("./long"));
  ASSERT_TRUE(await_workers()) << output();
  run("scontrol update NodeName=n1 State=DOWN Reason=test");
  EXPECT_TRUE(await_no_process(Milliseconds(3'000))) << output();
  EXPECT_TRUE(fs::exists(file("term.0")) && fs::exists(file("term.1"))) << output();
  await_end(job);
  run("scontrol update NodeName=n1 State=RESUME");
  EXPECT_TRUE(wait_until(Milliseconds(10'000), [&] { return run("sinfo --noheader -n n1 -o %T").text == "idle\n"; }));
}

/// SLURM itself takes half a minute to notice.
class SlurmPowerCut : public SlurmJobs {
 protected:
  ~SlurmPowerCut() override {
    run(kCluster + "start 1; scancel --quiet --full --user=$(id -un)");
    EXPECT_TRUE(wait_until(Milliseconds(60'000), [&] {
      run("scontrol update NodeName=n1 State=RESUME");
      return run("sinfo --noheader -o %T").text == "idle\n";
    })) << run("sinfo; squeue").text;
  }

  std::string run_and_cut(const std::string& options) {
    const std::string job = submit(options, kStep + std::string("./long"));
    EXPECT_TRUE(await_workers()) << output();
    run("rm pid.*; " + kCluster + "crash 1");
    EXPECT_TRUE(wait_until(Milliseconds(5'000), [&] {
      return fs::exists(file("term.0")) && fs::exists(file("term.1")) && num_processes() == 0;
    })) << output();
    EXPECT_TRUE(wait_until(Milliseconds(2'000), [&] { return count(output(), "lockstep: the job failed") == 1; }))
        << output();
    const std::string text = output();
    const size_t begin = text.find("lockstep: the job failed");
    const std::string cause = begin == std::string::npos ? "" : text.substr(begin, text.find('\n', begin) - begin);
    EXPECT_NE(cause.find(" n1"), std::string::npos) << text;
    // The cluster stops a node's processes before it kills them, and the kernel hangs up on a stopped group that loses
    // its parent: then the agent there may still say so.
    const bool was_lost = cause.find(") is lost: ") != std::string::npos;
    EXPECT_TRUE(was_lost || cause.ends_with("the launcher was stopped by SIGHUP")) << text;
    const int code = was_lost ? 5 : 128 + SIGHUP;
    EXPECT_TRUE(wait_until(Milliseconds(2'000), [&] {
      return count(output(), fmt::format("srun: error: n0: task 0: Exited with exit code {}\n", code)) == 1;
    })) << output();
    return job;
  }
};

TEST_F(SlurmPowerCut, IsNoticedByTheOtherAgent) { run_and_cut("--no-requeue"); }

using SlurmJobsSlow = SlurmPowerCut;

TEST_F(SlurmJobsSlow, AJobIsRequeuedAfterAPowerCut) {
  const std::string job = run_and_cut("--requeue");
  EXPECT_TRUE(wait_until(Milliseconds(60'000), [&] { return count(run("squeue --noheader").text, " PD ") == 1; }));
  run(kCluster + "start 1");
  ASSERT_TRUE(wait_until(Milliseconds(60'000), [&] { return has_all("pid"); })) << output();
  run("touch stop");
  const std::string text = await_end(job);
  EXPECT_EQ(state_of(job), "COMPLETED 0:0") << text;
  EXPECT_EQ(count(text, " of run " + job + ".0.1\n"), 4) << text;
}

/// SLURM looks at time limits twice a minute.
TEST_F(SlurmJobsSlow, TheWarningBeforeTheTimeLimitArrives) {
  const std::string job = submit("--time=1 --signal=USR1@55", kStep + std::string("./long"));
  ASSERT_TRUE(await_workers()) << output();
  EXPECT_TRUE(wait_until(Milliseconds(60'000), [&] { return has_all("usr1"); })) << output();
  run("touch stop");
  await_end(job);
  EXPECT_EQ(state_of(job), "COMPLETED 0:0") << output();
}

}  // namespace
}  // namespace lockstep::launch
