// How a run ends: signals, workers that do not stop, and what they leave behind.
#include "launch/run_process.h"

#include <gtest/gtest.h>

#include <csignal>
#include <sstream>

namespace lockstep::launch {
namespace {

/// Shell words that write the pid of `$1` (default: the shell's own) into $TMPDIR/<name>, whole or not at all.
std::string tell(const std::string& name, const std::string& pid = "$$") {
  return "echo " + pid + " > $TMPDIR/" + name + ".part; mv $TMPDIR/" + name + ".part $TMPDIR/" + name + "; ";
}

std::vector<pid_t> await_workers(const RunProcess& run, int count) {
  std::vector<pid_t> pids;
  for (int rank = 0; rank < count; ++rank) {
    pids.push_back(await_pid(run.file("pid" + std::to_string(rank))));
    EXPECT_GT(pids.back(), 0) << run.err();
  }
  return pids;
}

constexpr const char* kSleep = "while :; do sleep 0.01; done";

TEST(RunEnd, PassesSignalsOnAndReturnsTheirCode) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
    RunProcess run(shell_run({"--nproc_per_node", "2"}, tell("pid$RANK") + "exec sleep 600"));
    const auto workers = await_workers(run, 2);
    run.signal(signal);
    EXPECT_EQ(run.wait(), 128 + signal) << run.err();
    EXPECT_TRUE(contains(run.err(), "passed on to the workers; a second one kills them")) << run.err();
    EXPECT_TRUE(contains(run.err(), "stopped by ")) << run.err();
    EXPECT_FALSE(contains(run.err(), "FAILED")) << run.err();
    for (const pid_t pid : workers) EXPECT_TRUE(is_gone(pid));
    EXPECT_EQ(run.num_log_folders(), 0);
  }
}

TEST(RunEnd, WorkersThatSaveAndEndInOrderEndTheRunInOrder) {
  RunProcess run(shell_run({}, "trap 'echo saved; exit 0' TERM; " + tell("pid0") + kSleep));
  await_workers(run, 1);
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_EQ(run.out(), "saved\n");
}

TEST(RunEnd, ASecondInterruptKills) {
  RunProcess run(shell_run({"--nproc_per_node", "2"}, "trap '' INT TERM; " + tell("pid$RANK") + kSleep));
  const auto workers = await_workers(run, 2);
  run.signal(SIGINT);
  ASSERT_TRUE(eventually([&] { return contains(run.err(), "passed on"); }));
  run.signal(SIGINT);
  EXPECT_EQ(run.wait(), 130) << run.err();
  EXPECT_TRUE(contains(run.err(), "killing the workers")) << run.err();
  for (const pid_t pid : workers) EXPECT_TRUE(is_gone(pid));
}

TEST(RunEnd, KillsAfterTheShutdownTimeout) {
  RunProcess run(shell_run({"--shutdown_timeout", "0"}, "trap '' TERM; " + tell("pid0") + kSleep));
  await_workers(run, 1);
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait(), 143) << run.err();
  EXPECT_TRUE(contains(run.err(), "did not stop in time and was killed")) << run.err();
}

TEST(RunEnd, KillsAWorkerThatHangsWhenAnotherHasFailed) {
  RunProcess run(shell_run({"--nproc_per_node", "2", "--shutdown_timeout", "0"},
                           "if [ $RANK = 0 ]; then trap '' TERM; " + tell("pid0") + kSleep +
                               "; fi; while [ ! -e $TMPDIR/pid0 ]; do sleep 0.01; done; exit 6"));
  EXPECT_EQ(run.wait(), 6) << run.err();
  EXPECT_TRUE(contains(run.err(), "others: rank 0 did not stop in time and was killed")) << run.err();
  EXPECT_TRUE(is_gone(await_pid(run.file("pid0"))));
}

TEST(RunEnd, KeepsIgnoringAHangupThatWasIgnored) {
  RunProcess run(shell_run({}, tell("pid0") + "while [ ! -e $TMPDIR/go ]; do sleep 0.01; done"),
                 {.prepare = [] { std::signal(SIGHUP, SIG_IGN); }});
  const auto workers = await_workers(run, 1);
  run.signal(SIGHUP);
  kill(workers[0], SIGHUP);
  write_file_atomically(run.file("go"), "");
  EXPECT_EQ(run.wait(), 0) << run.err();
}

TEST(RunEnd, PassesUserSignalsOnAndGoesOn) {
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    RunProcess run(shell_run({}, "trap 'touch $TMPDIR/saved' USR1 USR2; " + tell("pid0") +
                                     "while [ ! -e $TMPDIR/go ]; do sleep 0.01; done; exit 0"));
    await_workers(run, 1);
    run.signal(signal);
    EXPECT_TRUE(eventually([&] { return run.has("saved"); }));
    write_file_atomically(run.file("go"), "");
    EXPECT_EQ(run.wait(), 0) << run.err();
    EXPECT_TRUE(contains(run.err(), "which go on")) << run.err();
  }
}

TEST(RunEnd, AUserSignalThatKillsAWorkerIsAFailure) {
  RunProcess run(shell_run({}, tell("pid0") + "exec sleep 600"));
  await_workers(run, 1);
  run.signal(SIGUSR1);
  EXPECT_EQ(run.wait(), 128 + SIGUSR1) << run.err();
}

TEST(RunEnd, HandlesTheSignalsItIsTold) {
  RunProcess run(shell_run({"--signals_to_handle", "SIGUSR1"}, tell("pid0") + "exec sleep 600"));
  await_workers(run, 1);
  run.signal(SIGUSR1);
  EXPECT_EQ(run.wait(), 128 + SIGUSR1) << run.err();
  EXPECT_TRUE(contains(run.err(), "stopped by SIGUSR1")) << run.err();
}

TEST(RunEnd, ItsDeathEndsWorkersAndWhatTheyStarted) {
  RunProcess run(shell_run({"--nproc_per_node", "2"},
                           "sleep 600 & " + tell("child$RANK", "$!") + tell("pid$RANK") + "wait"));
  const auto workers = await_workers(run, 2);
  std::vector<pid_t> all = workers;
  for (const char* name : {"child0", "child1"}) all.push_back(await_pid(run.file(name)));
  for (const pid_t pid : all) ASSERT_FALSE(is_gone(pid));
  run.signal(SIGKILL);
  const Clock::time_point killed = Clock::now();
  EXPECT_EQ(run.wait(), 137);
  for (const pid_t pid : all) EXPECT_TRUE(eventually([&] { return is_gone(pid); })) << pid;
  EXPECT_LT(seconds_since(killed), 2.0);
}

TEST(RunEnd, KillsTheBackgroundOfAWorkerThatEnds) {
  RunProcess run(shell_run({}, "sleep 600 & " + tell("child", "$!") + "exit 0"));
  EXPECT_EQ(run.wait(), 0) << run.err();
  EXPECT_TRUE(eventually([&] { return is_gone(await_pid(run.file("child"))); }));
}

TEST(RunEnd, AFailureEndsDaemonsTooASuccessDoesNot) {
  const std::string daemon = "setsid /bin/sh -c '" + tell("daemon") + "exec sleep 600' & "
                             "while [ ! -e $TMPDIR/daemon ]; do sleep 0.01; done; ";
  RunProcess bad(shell_run({}, daemon + "exit 3"));
  EXPECT_EQ(bad.wait(), 3) << bad.err();
  EXPECT_TRUE(is_gone(await_pid(bad.file("daemon"))));
  RunProcess good(shell_run({}, daemon + "exit 0"));
  EXPECT_EQ(good.wait(), 0) << good.err();
  const pid_t pid = await_pid(good.file("daemon"));
  EXPECT_FALSE(is_gone(pid));
  kill(pid, SIGKILL);
}

TEST(RunEnd, ReapsWhatWorkersLeaveBehind) {
  RunProcess run(shell_run({}, "(setsid /bin/sh -c '" + tell("orphan") + "' &); " + tell("pid0") +
                                   "while [ ! -e $TMPDIR/go ]; do sleep 0.01; done"));
  await_workers(run, 1);
  const pid_t orphan = await_pid(run.file("orphan"));
  ASSERT_GT(orphan, 0);
  EXPECT_TRUE(eventually([&] { return !fs::exists(fmt::format("/proc/{}", orphan)); })) << "a zombie is left";
  write_file_atomically(run.file("go"), "");
  EXPECT_EQ(run.wait(), 0) << run.err();
}

TEST(RunEnd, GoesOnWithoutItsGuard) {
  RunProcess run(shell_run({}, tell("pid0") + "while [ ! -e $TMPDIR/go ]; do sleep 0.01; done"));
  const pid_t worker = await_workers(run, 1)[0];
  std::vector<pid_t> children;
  std::istringstream text(read_file(fmt::format("/proc/{0}/task/{0}/children", run.pid())));
  for (pid_t pid = 0; text >> pid;) children.push_back(pid);
  ASSERT_EQ(children.size(), 2U);
  const pid_t guard = children[0] == worker ? children[1] : children[0];
  kill(guard, SIGKILL);
  EXPECT_TRUE(eventually([&] { return !fs::exists(fmt::format("/proc/{}", guard)); }));
  write_file_atomically(run.file("go"), "");
  EXPECT_EQ(run.wait(), 0) << run.err();
}

TEST(RunEnd, ReplacesItsGuard) {
  RunProcess run(shell_run({}, tell("pid0") + "/bin/sh -c '" + tell("child") + "exec sleep 300' & wait"));
  const pid_t worker = await_workers(run, 1)[0];
  const pid_t child = await_pid(run.file("child"));
  const auto guards = [&] {
    std::vector<pid_t> found;
    std::istringstream text(read_file(fmt::format("/proc/{0}/task/{0}/children", run.pid())));
    for (pid_t pid = 0; text >> pid;) {
      if (pid != worker) found.push_back(pid);
    }
    return found;
  };
  const std::vector<pid_t> first = guards();
  ASSERT_EQ(first.size(), 1U);
  kill(first[0], SIGKILL);
  // Said once the new one knows the workers.
  EXPECT_TRUE(eventually([&] { return run.err().find("there is a new one") != std::string::npos; })) << run.err();
  EXPECT_EQ(guards().size(), 1U);
  kill(run.pid(), SIGKILL);
  EXPECT_TRUE(eventually([&] { return is_gone(child); })) << "what the worker has started stays";
}

TEST(RunEnd, ASignalBetweenTwoRoundsEndsTheJob) {
  // The worker's own failure and the signal come together: whichever is seen first, no round may follow the signal.
  RunProcess run(shell_run({"--max_restarts", "1000000"}, "kill -TERM $PPID; exit 5"));
  const int code = run.wait();
  EXPECT_TRUE(code == 5 || code == 143) << code << run.err();
}

}  // namespace
}  // namespace lockstep::launch
