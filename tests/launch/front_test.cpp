#include "launch/processes.h"

#include <gtest/gtest.h>

#include <csignal>

namespace lockstep::launch {
namespace {

/// Files in which `num_workers` workers write their process ids once they are ready.
struct PidFiles {
  explicit PidFiles(int count) : num_workers(count) {}
  std::string path(int rank) const { return (folder.path() / std::to_string(rank)).string(); }
  std::vector<std::string> write_actions() const {
    std::vector<std::string> actions;
    for (int rank = 0; rank < num_workers; ++rank) {
      actions.push_back(std::to_string(rank) + ":write_pid=" + path(rank));
    }
    return actions;
  }
  std::vector<pid_t> await() const {
    std::vector<pid_t> pids;
    for (int rank = 0; rank < num_workers; ++rank) pids.push_back(await_pid(path(rank)));
    return pids;
  }
  TempFolder folder{"launch-pids"};
  int num_workers;
};

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& then,
                                const std::vector<std::string>& last) {
  first.insert(first.end(), then.begin(), then.end());
  first.insert(first.end(), last.begin(), last.end());
  return first;
}

void expect_no_orphans(const std::vector<std::string>& first_actions) {
  const PidFiles files(3);
  FrontProcess front(3, joined(first_actions, files.write_actions(), {"all:pause"}));
  const std::vector<pid_t> workers = files.await();
  for (const pid_t pid : workers) {
    ASSERT_GT(pid, 0) << front.err();
    ASSERT_FALSE(is_gone(pid));
  }
  front.signal(SIGKILL);
  const Clock::time_point killed = Clock::now();
  EXPECT_EQ(front.wait(), 137);
  for (const pid_t pid : workers) EXPECT_TRUE(eventually([&] { return is_gone(pid); }));
  EXPECT_LT(seconds_since(killed), 1.0);
}

TEST(Front, ItsDeathEndsAllWorkers) { expect_no_orphans({"all:link"}); }

TEST(Front, ItsDeathEndsWorkersByTheLinkAlone) { expect_no_orphans({"all:link", "all:without_parent_death_signal"}); }

TEST(Front, ItsDeathEndsWorkersThatNeverMadeALink) { expect_no_orphans({}); }

TEST(Front, PassesSignalsOnAndReturnsTheirCode) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    const PidFiles files(2);
    FrontProcess front(2, joined({"all:link"}, files.write_actions(), {"all:pause"}));
    const std::vector<pid_t> workers = files.await();
    front.signal(signal);
    EXPECT_EQ(front.wait(), 128 + signal) << front.err();
    for (const pid_t pid : workers) EXPECT_TRUE(is_gone(pid));
    EXPECT_NE(front.err().find("passed on to the workers"), std::string::npos) << front.err();
  }
}

TEST(Front, WorkersThatSaveAndEndGiveTheirOwnCode) {
  const PidFiles files(2);
  FrontProcess front(2, joined({"all:resumable_on=15", "all:link"}, files.write_actions(), {"all:pause"}));
  files.await();
  front.signal(SIGTERM);
  EXPECT_EQ(front.wait(), 75) << front.err();
  EXPECT_NE(front.err().find("ranks 0-1 saved its state and ended"), std::string::npos) << front.err();
}

TEST(Front, ASecondInterruptKills) {
  const PidFiles files(2);
  FrontProcess front(2, joined({"all:ignore=2", "all:link"}, files.write_actions(), {"all:pause"}));
  files.await();
  front.signal(SIGINT);
  ASSERT_TRUE(eventually([&] { return front.err().find("passed on") != std::string::npos; }));
  front.signal(SIGINT);
  EXPECT_EQ(front.wait(), 130) << front.err();
  EXPECT_NE(front.err().find("killing the workers"), std::string::npos) << front.err();
}

TEST(Front, KeepsIgnoringAHangupThatWasIgnored) {
  const PidFiles files(1);
  const std::string go = (files.folder.path() / "go").string();
  FrontProcess front(1, joined({"0:link"}, files.write_actions(), {"0:await=" + go, "0:exit=0"}),
                     [] { std::signal(SIGHUP, SIG_IGN); });
  files.await();
  front.signal(SIGHUP);
  write_file_atomically(go, "");
  EXPECT_EQ(front.wait(), 0) << front.err();
}

TEST(Front, DoesNotBlameWorkersForATimeInWhichItWasStopped) {
  const PidFiles files(1);
  const std::string go = (files.folder.path() / "go").string();
  FrontProcess front(1, joined({"0:link"}, files.write_actions(), {"0:await=" + go, "0:exit=0"}));
  files.await();
  front.signal(SIGSTOP);
  // Longer than the 1.5 s of the suspicion; the time itself is what is tested.
  const Clock::time_point stopped = Clock::now();
  ASSERT_TRUE(eventually([&] { return seconds_since(stopped) > 2.0; }));
  front.signal(SIGCONT);
  write_file_atomically(go, "");
  EXPECT_EQ(front.wait(), 0) << front.err();
  EXPECT_EQ(front.err(), "");
}

}  // namespace
}  // namespace lockstep::launch
