#include "lockstep/net/event_loop.h"

#include "turning.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <vector>

namespace lockstep::net {
namespace {

using namespace std::chrono_literals;

UniqueFd ready_event() { return UniqueFd(::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)); }

TEST(EventLoop, RunsTimersInTheOrderOfTheirTimes) {
  EventLoop loop;
  std::vector<int> order;
  const Clock::time_point now = Clock::now();
  loop.at(now + 3ms, [&] { order.push_back(3); });
  loop.at(now + 1ms, [&] { order.push_back(1); });
  const EventLoop::TimerId cancelled = loop.at(now + 2ms, [&] { order.push_back(2); });
  loop.cancel(cancelled);
  loop.cancel(cancelled);
  loop.cancel(0);
  ASSERT_TRUE(turn_until(loop, [&] { return order.size() == 2; }));
  EXPECT_EQ(order, (std::vector<int>{1, 3}));
  EXPECT_GE(Clock::now(), now + 3ms);
}

TEST(EventLoop, ATimerMayCancelAnotherOfTheSameRound) {
  EventLoop loop;
  bool second = false;
  EventLoop::TimerId id = 0;
  const Clock::time_point past = Clock::now() - 1ms;
  loop.at(past - 1ms, [&] { loop.cancel(id); });
  id = loop.at(past, [&] { second = true; });
  loop.run_once(0ms);
  EXPECT_FALSE(second);
}

TEST(EventLoop, ATimerOfSpanZeroDoesNotHoldTheLoop) {
  EventLoop loop;
  int times = 0;
  std::function<void()> again = [&] {
    ++times;
    loop.after(0ms, again);
  };
  loop.after(0ms, again);
  loop.run_once(0ms);
  EXPECT_EQ(times, 1);
  EXPECT_EQ(loop.until_next_timer(10s), 0ms);
}

TEST(EventLoop, TellsHowLongUntilTheNextTimer) {
  EventLoop loop;
  EXPECT_EQ(loop.until_next_timer(7s), 7s);
  loop.after(60s, [] {});
  EXPECT_EQ(loop.until_next_timer(7s), 7s);
  EXPECT_GT(loop.until_next_timer(600s), 50s);
  loop.after(Milliseconds::max(), [] {});
  EXPECT_LE(loop.until_next_timer(Milliseconds::max()), 60s);
}

TEST(EventLoop, ACallbackMayUnwatchItsOwnAndOthersDescriptors) {
  EventLoop loop;
  const UniqueFd first = ready_event();
  const UniqueFd second = ready_event();
  int calls = 0;
  const auto both_off = [&](uint32_t) {
    ++calls;
    loop.unwatch(first.get());
    loop.unwatch(second.get());
  };
  loop.watch(first.get(), EPOLLIN, both_off);
  loop.watch(second.get(), EPOLLIN, both_off);
  loop.run_once(0ms);
  loop.run_once(0ms);
  EXPECT_EQ(calls, 1);
}

TEST(EventLoop, AnEventOfAClosedDescriptorDoesNotReachItsSuccessor) {
  EventLoop loop;
  UniqueFd first = ready_event();
  UniqueFd second = ready_event();
  UniqueFd successor;
  int successor_calls = 0;
  // Whichever is called first closes the other and watches a new descriptor of the same number.
  const auto replace = [&](UniqueFd& other) {
    const int number = other.get();
    loop.unwatch(number);
    other.reset();
    successor = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    ASSERT_EQ(successor.get(), number);
    loop.watch(number, EPOLLIN, [&](uint32_t) { ++successor_calls; });
  };
  loop.watch(first.get(), EPOLLIN, [&](uint32_t) { replace(second); });
  loop.watch(second.get(), EPOLLIN, [&](uint32_t) { replace(first); });
  loop.run_once(0ms);
  EXPECT_EQ(successor_calls, 0);
  ASSERT_GE(successor.get(), 0);
}

TEST(EventLoop, ItsDescriptorShowsWaitingEvents) {
  EventLoop loop;
  EventLoop outer;
  const UniqueFd event = ready_event();
  bool inner_ran = false;
  outer.watch(loop.fd(), EPOLLIN, [&](uint32_t) { loop.run_once(0ms); });
  outer.run_once(0ms);
  EXPECT_FALSE(inner_ran);
  loop.watch(event.get(), EPOLLIN, [&](uint32_t) {
    inner_ran = true;
    loop.unwatch(event.get());
  });
  EXPECT_TRUE(turn_until(outer, [&] { return inner_ran; }));
}

}  // namespace
}  // namespace lockstep::net
