#include "lockstep/base/thread_team.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <latch>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

TEST(ThreadTeam, RunsEveryItemOnce) {
  for (const int size : {1, 2, 5}) {
    ThreadTeam team(size);
    EXPECT_EQ(team.size(), size);
    for (const size_t num_items : {0, 1, 2, 1000}) {
      std::vector<std::atomic<int>> times(num_items);
      std::atomic<bool> wrong_thread = false;
      team.run(num_items, [&](size_t item, int thread) {
        ++times[item];
        if (thread < 0 || thread >= size) wrong_thread = true;
      });
      for (size_t i = 0; i < num_items; ++i) ASSERT_EQ(times[i], 1) << "item " << i << " of " << num_items;
      EXPECT_FALSE(wrong_thread);
    }
  }
}

TEST(ThreadTeam, OfOneRunsOnTheCallersThreadInOrder) {
  ThreadTeam team(1);
  const std::thread::id caller = std::this_thread::get_id();
  std::vector<size_t> items;
  team.run(5, [&](size_t item, int thread) {
    EXPECT_EQ(thread, 0);
    items.push_back(item);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
  EXPECT_EQ(items, (std::vector<size_t>{0, 1, 2, 3, 4}));
}

TEST(ThreadTeam, AllThreadsTakePart) {
  ThreadTeam team(3);
  std::latch all_here(3);  // opens only when three items run at the same time
  std::mutex mutex;
  std::set<int> threads;
  team.run(3, [&](size_t, int thread) {
    all_here.arrive_and_wait();
    const std::lock_guard lock(mutex);
    threads.insert(thread);
  });
  EXPECT_EQ(threads, (std::set<int>{0, 1, 2}));
}

TEST(ThreadTeam, AFreeThreadTakesTheNextItem) {
  ThreadTeam team(2);
  // Item 0 ends only after all others have: a fixed division of the items would never end.
  std::latch others_done(9);
  std::atomic<int> done = 0;
  team.run(10, [&](size_t item, int) {
    if (item == 0) {
      others_done.wait();
    } else {
      others_done.count_down();
    }
    ++done;
  });
  EXPECT_EQ(done, 10);
}

TEST(ThreadTeam, RethrowsTheFailureOfTheLowestItem) {
  ThreadTeam team(3);
  std::latch all_here(3);
  try {
    team.run(3, [&](size_t item, int) {
      all_here.arrive_and_wait();
      throw std::runtime_error("item " + std::to_string(item));
    });
    FAIL() << "no exception came out of run()";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "item 0");
  }
}

TEST(ThreadTeam, TakesNoNewItemsAfterAFailureAndWorksAgain) {
  for (const int size : {1, 3}) {
    ThreadTeam team(size);
    std::atomic<int> started = 0;
    EXPECT_THROW(team.run(1'000'000,
                          [&](size_t, int) {
                            ++started;
                            throw std::runtime_error("stop");
                          }),
                 std::runtime_error);
    EXPECT_LE(started, size);
    std::atomic<int> done = 0;
    team.run(10, [&](size_t, int) { ++done; });
    EXPECT_EQ(done, 10);
  }
}

TEST(ThreadTeam, ManyShortRunsLoseNothing) {
  ThreadTeam team(3);
  for (int round = 0; round < 2000; ++round) {
    std::atomic<int> sum = 0;
    team.run(4, [&](size_t item, int) { sum += static_cast<int>(item); });
    ASSERT_EQ(sum, 6) << "round " << round;
  }
}

/// In a child that has room for the stacks of a few threads.
TEST(ThreadTeam, AThreadThatCannotBeStartedIsAnErrorAndNoHang) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    rlim_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t room = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{40} << 20);
    const rlimit limit = {room, room};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(3);
    try {
      const ThreadTeam team(64);
    } catch (const Error& error) {
      const bool is_told = std::string(error.what()).find(" of 64 cannot be started") != std::string::npos;
      _exit(error.kind() == ErrorKind::Environment && is_told ? 0 : 2);
    }
    _exit(1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "a signal is the alarm: it hung";
}

TEST(ThreadTeam, ARunInsideARunIsRefused) {
  ThreadTeam team(2);
  EXPECT_THROW(team.run(1, [&](size_t, int) { team.run(1, [](size_t, int) {}); }), Error);
}

TEST(AvailableCores, FollowsTheAffinityMask) {
  EXPECT_GE(available_cores(), 1);
  cpu_set_t old;
  ASSERT_EQ(sched_getaffinity(0, sizeof old, &old), 0);
  int first = 0;
  while (!CPU_ISSET(first, &old)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(available_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof old, &old), 0);
}

}  // namespace
}  // namespace lockstep
