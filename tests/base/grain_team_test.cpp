#include "lockstep/base/grain_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <vector>

namespace lockstep {
namespace {

TEST(GrainTeam, EachPartIsDoneOnceHoweverFewThreads) {
  for (const int threads : {1, 2, 3, 5}) {
    GrainTeam team(5, threads);
    for (int round = 0; round < 300; ++round) {
      std::vector<std::atomic<int>> done(5);
      team.run([&](int part) { ++done[static_cast<size_t>(part)]; });
      for (const auto& count : done) ASSERT_EQ(count, 1) << threads << " threads, round " << round;
    }
  }
}

TEST(GrainTeam, ThreadsThatSleptWakeUp) {
  GrainTeam team(2, 2);
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> sum = 0;
    team.run([&](int part) {
      if (part == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      sum += part + 1;
    });
    EXPECT_EQ(sum, 3);
  }
}

TEST(GrainTeam, TheFirstPartsExceptionIsRethrownAndTheTeamGoesOn) {
  GrainTeam team(4, 3);
  const auto failing = [](int part) {
    if (part % 2 == 1) throw std::runtime_error(std::to_string(part));
  };
  for (int round = 0; round < 50; ++round) {
    try {
      team.run(failing);
      FAIL() << "nothing thrown";
    } catch (const std::runtime_error& problem) {
      EXPECT_STREQ(problem.what(), "1");
    }
  }
  std::atomic<int> sum = 0;
  team.run([&](int part) { sum += part; });
  EXPECT_EQ(sum, 6);
}

using Cuts = std::set<std::tuple<int64_t, int64_t, int>>;
Cuts cuts(int64_t count, int64_t unit) {
  std::mutex mutex;
  Cuts all;
  split_grain_work(count, unit, [&](int64_t begin, int64_t end, int part) {
    EXPECT_EQ(GrainTeam::of_this_thread() != nullptr, begin == 0 && end == count) << "parts are not split again";
    const std::lock_guard lock(mutex);
    all.insert({begin, end, part});
  });
  return all;
}

TEST(GrainTeam, CutsDependOnItsPartsAlone) {
  for (const int threads : {1, 2, 3}) {
    GrainTeam team(3, threads);
    const GrainTeamScope scope(&team);
    EXPECT_EQ(cuts(100, 16), (Cuts{{0, 32, 0}, {32, 64, 1}, {64, 100, 2}}));
    EXPECT_EQ(cuts(20, 16), (Cuts{{0, 16, 0}, {16, 20, 1}}));
  }
}

TEST(GrainTeam, WithoutATeamOrWithLittleWorkNothingIsCut) {
  int calls = 0;
  const auto whole = [&](int64_t begin, int64_t end, int part) {
    ++calls;
    EXPECT_EQ(std::tuple(begin, end, part), std::tuple(int64_t{0}, int64_t{100}, 0));
  };
  split_grain_work(100, 16, whole);
  GrainTeam team(2, 2);
  const GrainTeamScope scope(&team);
  split_grain_work(100, 100, whole);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace lockstep
