#include "launch/processes.h"

#include "lockstep/base/error.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/launch/local_group.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <sstream>

namespace lockstep::launch {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Group, PassesOnTheExitCode) {
  struct Case {
    const char* action;
    int exit_code;
  };
  for (const Case& c : {Case{"1:exit=0", 0}, {"1:exit=2", 2}, {"1:exit=9", 9}, {"1:kill=9", 137}, {"1:kill=11", 139},
                        {"1:exit=75", 75}, {"1:fail=Data/bad row", 3}, {"1:fail=NonFinite/loss", 7}, {"1:fail=OtherBits/a hash", 8}}) {
    GroupRun group(2, {"all:link", c.action});
    EXPECT_EQ(group.run().result.exit_code, c.exit_code) << c.action << "\n" << group.err;
    ASSERT_EQ(group.result.ends.size(), 2U);
  }
}

TEST(Group, AWorkerThatLeavesBeforeItHasJoinedHasFailed) {
  GroupRun group(2, {"0:link", "1:exit=0", "0:pause"});
  EXPECT_EQ(group.run().result.exit_code, 4) << group.err;
  ASSERT_TRUE(group.result.cause.has_value());
  EXPECT_EQ(group.result.cause->world_rank, 1);
  EXPECT_NE(group.err.find("left with status 0 before it had done"), std::string::npos) << group.err;
}

TEST(Group, SaysNothingOfItsOwnWhenAllGoesWell) {
  GroupRun group(2, {"all:link", "0:done=the model is in out/", "1:done=not this one", "0:line=hello"});
  group.run();
  EXPECT_EQ(group.result.exit_code, 0);
  EXPECT_EQ(group.result.done_text, "the model is in out/");
  EXPECT_EQ(group.out, "hello\n");
  EXPECT_EQ(group.err, "");
  EXPECT_FALSE(group.result.cause.has_value());
}

TEST(Group, StopsAllWhenOneFailsAndNamesItsErrorLast) {
  GroupRun group(3, {"all:link", "1:phase=read the data", "1:fail=Data/row 7 of train.jsonl has no messages",
                     "all:pause"});
  group.run();
  EXPECT_EQ(group.result.exit_code, 3);
  ASSERT_TRUE(group.result.cause.has_value());
  EXPECT_EQ(group.result.cause->world_rank, 1);
  EXPECT_TRUE(group.err.ends_with(group.result.report));
  for (const char* part : {"rank 1", "failed first", "exit code 3", "read the data",
                           "row 7 of train.jsonl has no messages", "ranks 0, 2 stopped by lockstep"}) {
    EXPECT_NE(group.result.report.find(part), std::string::npos) << part << " in\n" << group.result.report;
  }
  for (const WorkerEnd& end : group.result.ends) EXPECT_TRUE(is_gone(end.pid));
}

TEST(Group, ADeathWinsOverThePeerErrorThatReportsIt) {
  GroupRun group(2, {"all:link"});
  // Rank 0 reports before rank 1 is dead: the order that a closing socket can produce.
  group.spec.args.insert(group.spec.args.end(),
                         {"0:fail=Peer/rank 1 closed the connection",
                          "1:await=" + error_record_path(group.spec.run_folder, 0).string(), "1:kill=9"});
  // Rank 1 may need longer than usual to get a processor.
  group.spec.timeouts.consequence_wait = kPatience;
  group.run();
  EXPECT_EQ(group.result.exit_code, 137) << group.err;
  ASSERT_TRUE(group.result.cause.has_value());
  EXPECT_EQ(group.result.cause->world_rank, 1);
  EXPECT_NE(group.result.report.find("SIGKILL"), std::string::npos);
  EXPECT_NE(group.result.report.find("dmesg"), std::string::npos);
  EXPECT_NE(group.result.report.find("rank 0 Peer error, exit code 5 (follows from it)"), std::string::npos)
      << group.result.report;
}

TEST(Group, APeerErrorWithoutACauseStandsForItself) {
  GroupRun group(2, {"all:link", "0:fail=Peer/rank 1 is not reachable", "1:pause"});
  group.spec.timeouts.consequence_wait = Milliseconds(50);
  group.run();
  EXPECT_EQ(group.result.exit_code, 5);
  EXPECT_EQ(group.result.cause->world_rank, 0);
}

TEST(Group, KillsAWorkerThatDoesNotStop) {
  GroupRun group(2, {"all:ignore=15", "all:link"});
  const std::string ready = group.file("ready");
  group.spec.args.insert(group.spec.args.end(),
                         {"0:write_pid=" + ready, "0:pause", "1:await=" + ready, "1:exit=1"});
  group.spec.timeouts.stop_grace = Milliseconds(100);
  group.run();
  EXPECT_EQ(group.result.exit_code, 1);
  EXPECT_EQ(group.result.ends[0].signal, SIGKILL);
  EXPECT_NE(group.result.report.find("rank 0 did not stop in time and was killed"), std::string::npos)
      << group.result.report;
}

TEST(Group, KillsAWorkerThatFailedAndHangsAtItsEnd) {
  GroupRun group(1, {"0:link", "0:fail_and_hang=broken file"});
  group.spec.timeouts.stop_grace = Milliseconds(100);
  group.run();
  EXPECT_EQ(group.result.exit_code, 3);
  EXPECT_EQ(group.result.ends[0].signal, SIGKILL);
  EXPECT_NE(group.result.report.find("broken file"), std::string::npos);
}

TEST(Group, LeavesNoGrandchild) {
  GroupRun group(1, {"0:link"});
  const std::string path = group.file("grandchild");
  group.spec.args.insert(group.spec.args.end(), {"0:grandchild=" + path, "0:await=" + path, "0:exit=0"});
  group.run();
  EXPECT_EQ(group.result.exit_code, 0);
  const pid_t grandchild = await_pid(path);
  ASSERT_GT(grandchild, 0);
  EXPECT_TRUE(eventually([&] { return is_gone(grandchild); }));
}

TEST(Group, ReportsAStoppedWorker) {
  GroupRun group(2, {"all:link", "1:phase=update 12", "1:kill=19", "all:pause"});
  group.spec.timeouts.suspect = Milliseconds(500);
  group.spec.timeouts.dead = Milliseconds(2000);
  group.run();
  EXPECT_EQ(group.result.exit_code, 6) << group.err;
  EXPECT_EQ(group.result.cause->world_rank, 1);
  EXPECT_NE(group.err.find("rank 1 (pid"), std::string::npos);
  EXPECT_NE(group.err.find("process state T"), std::string::npos) << group.err;
  const std::string expected = fmt::format("rank 1 (pid {}) gave no sign of life for ", group.result.ends[1].pid);
  EXPECT_NE(group.result.report.find(expected), std::string::npos) << group.result.report;
  EXPECT_NE(group.result.report.find("It is stopped (SIGSTOP"), std::string::npos) << group.result.report;
}

TEST(Group, ReportsAWorkerThatHangsAfterClosingItsLink) {
  GroupRun group(1, {"0:link", "0:unlink", "0:pause"});
  group.spec.timeouts.suspect = Milliseconds(400);
  group.spec.timeouts.dead = Milliseconds(800);
  group.run();
  EXPECT_EQ(group.result.exit_code, 6) << group.err;
  EXPECT_NE(group.result.report.find("hung while ending"), std::string::npos) << group.result.report;
}

TEST(Group, WaitsForASilentWorkerThatIsReadyToRun) {
  GroupRun group(1, {"0:link", "0:unlink", "0:spin=2500", "0:exit=0"});
  group.spec.timeouts.suspect = Milliseconds(300);
  group.spec.timeouts.dead = Milliseconds(600);
  group.run();
  EXPECT_EQ(group.result.exit_code, 0) << group.err;
  EXPECT_NE(group.err.find("it is ready to run but gets no processor); it is taken for dead at 60.0 s"), std::string::npos) << group.err;
}

TEST(Group, DoesNotWaitForeverForOneThatIsReadyToRun) {
  GroupRun group(1, {"0:link", "0:unlink", "0:spin=60000"});
  group.spec.timeouts.suspect = Milliseconds(300);
  group.spec.timeouts.dead = Milliseconds(600);
  group.spec.timeouts.starved = Milliseconds(1200);
  group.run();
  EXPECT_EQ(group.result.exit_code, 6) << group.err;
  EXPECT_NE(group.result.report.find("the machine is overloaded"), std::string::npos) << group.result.report;
}

TEST(Group, NamesTheRanksThatDidNotStart) {
  GroupRun group(4, {"0:link", "2:link", "all:pause"});
  // Long enough for the others to say hello on an overloaded machine, for the test asserts who is present.
  group.spec.timeouts.start = Milliseconds(2500);
  group.run();
  EXPECT_EQ(group.result.exit_code, 6);
  // The seconds are those that passed, which an overloaded machine makes more.
  EXPECT_NE(group.result.report.find("ranks 1, 3 did not start within "), std::string::npos) << group.result.report;
  EXPECT_NE(group.result.report.find(" s (present: ranks 0, 2)"), std::string::npos) << group.result.report;
}

TEST(Group, AWorkerThatCannotBeStartedIsNamed) {
  GroupRun group(2, {});
  group.spec.command = "/nowhere/lockstep-worker";
  try {
    group.run();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::Environment);
    EXPECT_NE(std::string(error.what()).find("/nowhere/lockstep-worker"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("No such file"), std::string::npos);
  }
}

TEST(Group, GivesEachWorkerItsEnvironment) {
  setenv("LOCKSTEP_TTY_COLUMNS", "80", 1);
  setenv("OMP_NUM_THREADS", "7", 1);
  GroupRun group(2, {"all:link", "1:environment"});
  group.spec.env = {{"OF_THE_USER", "a = b"}};
  group.spec.threads_per_process = 3;
  group.run();
  unsetenv("LOCKSTEP_TTY_COLUMNS");
  ASSERT_EQ(group.result.exit_code, 0) << group.err;
  std::set<std::string> lines;
  for (const std::string& line : lines_of(group.out)) lines.insert(line.substr(line.find(' ') + 1));
  for (const std::string& expected :
       {std::string("RANK=1"), std::string("LOCAL_RANK=1"), std::string("WORLD_SIZE=2"),
        std::string("LOCAL_WORLD_SIZE=2"), std::string("GROUP_RANK=0"), std::string("MASTER_ADDR=127.0.0.1"),
        "LOCKSTEP_RUN_FOLDER=" + group.spec.run_folder.string(), std::string("LOCKSTEP_CONTROL_FD=3"),
        std::string("LOCKSTEP_NUM_THREADS=3"), std::string("OMP_NUM_THREADS=1"), std::string("MKL_NUM_THREADS=1"),
        "MKL_CBWR=" + mkl_cbwr(cpu_flags()), std::string("ONEDNN_PRIMITIVE_CACHE_CAPACITY=512"),
        std::string("OF_THE_USER=a = b")}) {
    EXPECT_TRUE(lines.contains(expected)) << expected << " not in\n" << group.out;
  }
  EXPECT_EQ(group.out.find("LOCKSTEP_TTY_COLUMNS"), std::string::npos);
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(), [](const auto& l) { return l.starts_with("OMP_NUM_THREADS="); }),
            1);
}

TEST(Group, GivesWorkersFourDescriptorsAndASessionOfTheirOwn) {
  const UniqueFd inheritable(open("/dev/null", O_RDONLY));
  ASSERT_GE(inheritable.get(), 0);
  GroupRun group(2, {"1:descriptors", "1:session", "all:link"});
  group.run();
  EXPECT_EQ(group.out, "[rank1] 0\n[rank1] 1\n[rank1] 2\n[rank1] 3\n[rank1] own\n");
}

TEST(Group, LeavesNoDescriptorAndNoSignalMaskBehind) {
  const auto count_open = [] {
    return std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator());
  };
  GroupRun(1, {"0:link"}).run();
  const auto before = count_open();
  GroupRun(3, {"all:link", "2:exit=1", "all:pause"}).run();
  EXPECT_EQ(count_open(), before);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  for (const int signal : {SIGINT, SIGTERM, SIGCHLD, SIGPIPE}) EXPECT_EQ(sigismember(&mask, signal), 0);
}

TEST(Group, EightWorkersLoseNoLine) {
  constexpr int kWorkers = 8;
  constexpr int kLines = 10'000;
  GroupRun group(kWorkers, {"all:link", fmt::format("all:lines={}", kLines)});
  group.run();
  ASSERT_EQ(group.result.exit_code, 0) << group.err;
  std::vector<int> next(kWorkers, 0);
  for (const std::string& line : lines_of(group.out)) {
    const size_t rank = static_cast<size_t>(line.back() - '0');
    ASSERT_LT(rank, next.size()) << line;
    const std::string prefix = rank == 0 ? "" : fmt::format("[rank{}] ", rank);
    ASSERT_EQ(line, fmt::format("{}line {} of rank {}", prefix, next[rank], rank));
    ++next[rank];
  }
  EXPECT_EQ(next, std::vector<int>(kWorkers, kLines));
}

TEST(Group, UnfinishedLastLinesAreHandedOn) {
  GroupRun group(2, {"all:link"});
  const std::string written = group.file("written");
  group.spec.args.insert(group.spec.args.end(), {"0:print=half", "0:write_pid=" + written, "1:await=" + written,
                                                 "1:print=other half", "1:kill=9"});
  group.run();
  const std::set<std::string> expected = {"half", "[rank1] other half"};
  const std::vector<std::string> lines = lines_of(group.out);
  EXPECT_EQ(std::set<std::string>(lines.begin(), lines.end()), expected) << group.out;
}

/// A worker that its parent cannot reap stands in for one that the kernel does not let go of: killed, and still there.
class HeldWorker : public testing::Test {
 protected:
  ~HeldWorker() override {
    if (tracer_ > 0) kill(tracer_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  /// After be_traced: its tracer ends with the test.
  void note(const std::string& tracer_file, pid_t pid) {
    tracer_ = await_pid(tracer_file);
    ASSERT_GT(tracer_, 0);
    pid_ = pid;
  }
  pid_t tracer_ = -1;
  pid_t pid_ = -1;
};

TEST_F(HeldWorker, IsLeftBehindAndNamedWhenTheGroupGoes) {
  const TempFolder folder("launch-test");
  const std::string file = (folder.path() / "tracer").string();
  const UniqueFd err(open((folder.path() / "err").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Console console({.out_fd = err.get(), .err_fd = err.get()});
  console.begin_round(2);
  const Clock::time_point start = Clock::now();
  {
    LocalGroup group({.kind = GroupSettings::Kind::Foreign, .timeouts = {.kill_wait = Milliseconds(300)}}, console, console);
    Environment second = current_environment();
    second.insert_or_assign("RANK", "1");
    Environment first = second;
    first.insert_or_assign("RANK", "0");
    group.start({{.world_rank = 0, .argv = {TEST_WORKER, "0:be_traced=" + file, "0:pause"}, .environment = first},
                 {.world_rank = 1, .argv = {TEST_WORKER, "1:pause"}, .environment = second}});
    note(file, group.ends()[0].pid);
  }
  EXPECT_LT(Clock::now() - start, kPatience / 2);
  console.write_some();
  EXPECT_EQ(read_file(folder.path() / "err"),
            fmt::format("lockstep: rank 0 (pid {}) does not end although it was killed (process state Z): left behind\n", pid_));
}

TEST_F(HeldWorker, DoesNotKeepTheOthersFromTheirEnd) {
  GroupRun group(2, {"all:link"});
  const std::string file = group.file("tracer");
  group.spec.args.insert(group.spec.args.end(), {"0:be_traced=" + file, "0:pause", "1:await=" + file, "1:exit=7"});
  group.spec.timeouts.stop_grace = Milliseconds(100);
  group.spec.timeouts.kill_wait = Milliseconds(300);
  group.run();
  note(file, group.result.ends[0].pid);
  EXPECT_EQ(group.result.exit_code, 7) << group.err;
  EXPECT_NE(group.err.find(fmt::format("rank 0 (pid {}) does not end although it was killed", pid_)), std::string::npos) << group.err;
  EXPECT_TRUE(group.result.ends[0].still_there);
}

TEST(Group, MayOpenManyFilesAndItsWorkersAsManyAsBefore) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_GT(before.rlim_max, 700U);
  const auto limit = [](pid_t pid) {
    rlimit found{};
    EXPECT_EQ(prlimit(pid, RLIMIT_NOFILE, nullptr, &found), 0);
    return found;
  };
  const rlimit low = {700, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const TempFolder folder("launch-test");
  const UniqueFd err(open((folder.path() / "err").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  Console console({.out_fd = err.get(), .err_fd = err.get()});
  console.begin_round(1);
  {
    LocalGroup group({.kind = GroupSettings::Kind::Foreign}, console, console);
    EXPECT_EQ(limit(0).rlim_cur, before.rlim_max);
    group.start({{.world_rank = 0, .argv = {TEST_WORKER, "all:pause"}, .environment = current_environment()}});
    const rlimit of_worker = limit(group.ends()[0].pid);
    EXPECT_EQ(of_worker.rlim_cur, 700U);
    EXPECT_EQ(of_worker.rlim_max, before.rlim_max);
  }
  EXPECT_EQ(limit(0).rlim_cur, 700U);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Group, AWorkerRunByHandNeedsNoFrontProgram) {
  EXPECT_EQ(std::system((std::string(TEST_WORKER) + " 0:link 0:phase=x 0:done=y 0:exit=0").c_str()), 0);
}

}  // namespace
}  // namespace lockstep::launch
