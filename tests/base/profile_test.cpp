#include "lockstep/base/profile.h"
#include "lockstep/base/thread_team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

namespace lockstep::profile {
namespace {

int64_t count(const ThreadSpans& spans, Kind kind) {
  return std::count_if(spans.spans.begin(), spans.spans.end(), [&](const Span& span) { return span.kind == kind; });
}

TEST(Profile, NothingIsRecordedWhereNobodyAsks) {
  bool asked = false;
  {
    const Scope span(Kind::Norm, [&] { return asked = true, 5; });
  }
  EXPECT_FALSE(asked);
  EXPECT_EQ(spans_of_this_thread(), nullptr);
}

TEST(Profile, ScopesAreSpansInTheOrderOfTheirEnds) {
  Recorder recorder(1, 8);
  recorder.start();
  {
    const Scope outer(Kind::Grain, 7);
    const Scope inner(Kind::ProductForward, [] { return 100; });
  }
  recorder.stop();
  {
    const Scope after(Kind::Norm);
  }
  const std::vector<Span>& spans = recorder.spans(0).spans;
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].kind, Kind::ProductForward);
  EXPECT_EQ(spans[0].work, 100);
  EXPECT_EQ(spans[1].kind, Kind::Grain);
  EXPECT_EQ(spans[1].index, 7);
  EXPECT_LE(spans[1].begin_ns, spans[0].begin_ns);
  EXPECT_LE(spans[0].begin_ns, spans[0].end_ns);
  EXPECT_LE(spans[0].end_ns, spans[1].end_ns);
}

TEST(Profile, MemoryIsBoundedAndWhatIsLostIsCounted) {
  Recorder recorder(1, 3);
  recorder.start();
  for (int i = 0; i < 5; ++i) {
    const Scope span(Kind::Norm, i);
  }
  recorder.stop();
  EXPECT_EQ(recorder.spans(0).spans.size(), 3U);
  EXPECT_EQ(recorder.spans(0).num_lost, 2);
}

TEST(Profile, ThreadsOfATeamRecordWhereTheirCallerDoes) {
  constexpr int kThreads = 3;
  ThreadTeam team(kThreads);
  Recorder recorder(kThreads, 64);
  std::atomic<int> arrived = 0;
  const auto meet = [&](size_t item, int) {
    const Scope span(Kind::Grain, static_cast<int64_t>(item));
    ++arrived;
    while (arrived.load() < kThreads) std::this_thread::yield();
  };
  team.run(kThreads, meet);  // nobody records
  arrived = 0;
  recorder.start();
  team.run(kThreads, meet);
  recorder.stop();
  arrived = 0;
  team.run(kThreads, meet);
  for (int thread = 0; thread < kThreads; ++thread) {
    const ThreadSpans& spans = recorder.spans(thread);
    EXPECT_EQ(count(spans, Kind::Grain), 1) << thread;
    // Thread 0 waits for the others; a helper for its work and for the end.
    EXPECT_EQ(count(spans, Kind::Threads), thread == 0 ? 1 : 2) << thread;
    for (size_t i = 1; i < spans.spans.size(); ++i) EXPECT_LE(spans.spans[i - 1].end_ns, spans.spans[i].begin_ns) << thread;
  }
}

TEST(Profile, ATeamThatIsLargerThanTheRecorderWorksOn) {
  ThreadTeam team(2);
  Recorder recorder(1, 16);
  recorder.start();
  std::atomic<int> done = 0;
  team.run(8, [&](size_t, int) {
    const Scope span(Kind::Grain);
    ++done;
  });
  recorder.stop();
  EXPECT_EQ(done, 8);
  EXPECT_LE(count(recorder.spans(0), Kind::Grain), 8);
}

}  // namespace
}  // namespace lockstep::profile
