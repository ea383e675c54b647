#include "lockstep/net/event_loop.h"

#include "lockstep/base/error.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

namespace lockstep::net {
namespace {

void control(int epoll, int operation, int fd, uint32_t events, uint64_t tag) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  LS_CHECK(::epoll_ctl(epoll, operation, fd, &event) == 0, "epoll_ctl({}, descriptor {}): {}", operation, fd,
           std::strerror(errno));
}

}  // namespace

EventLoop::EventLoop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  if (epoll_.get() < 0) {
    throw Error::environment("cannot create an event queue: {}. Raise the limit on open files (ulimit -n).",
                             std::strerror(errno));
  }
}

// A descriptor's number is used again as soon as it is closed; the generation keeps an event that was fetched for the
// old one from reaching the new one.
uint64_t EventLoop::tag(int fd, const Watch& watch) {
  return uint64_t{watch.generation} << 32U | static_cast<uint32_t>(fd);
}

void EventLoop::watch(int fd, uint32_t events, OnEvents on_events) {
  auto entry = std::make_shared<Watch>(Watch{next_generation_++, std::move(on_events)});
  control(epoll_.get(), EPOLL_CTL_ADD, fd, events, tag(fd, *entry));
  watched_.insert_or_assign(fd, std::move(entry));
}

void EventLoop::change(int fd, uint32_t events) {
  const auto found = watched_.find(fd);
  LS_CHECK(found != watched_.end(), "descriptor {} is not watched", fd);
  control(epoll_.get(), EPOLL_CTL_MOD, fd, events, tag(fd, *found->second));
}

void EventLoop::unwatch(int fd) {
  if (watched_.erase(fd) > 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::at(Clock::time_point when, std::function<void()> work) {
  const TimerId id = next_timer_++;
  timer_of_.emplace(id, timers_.emplace(when, Timer{id, std::move(work)}));
  return id;
}

void EventLoop::cancel(TimerId id) {
  const auto found = timer_of_.find(id);
  if (found == timer_of_.end()) return;
  timers_.erase(found->second);
  timer_of_.erase(found);
}

Milliseconds EventLoop::until_next_timer(Milliseconds longest) const {
  if (timers_.empty()) return longest;
  return std::min(longest, Deadline::at(timers_.begin()->first).remaining());
}

void EventLoop::run_once(Milliseconds longest) {
  constexpr Milliseconds kLongestWait = std::chrono::hours(1);
  std::array<epoll_event, 256> events;
  const auto wait = static_cast<int>(until_next_timer(std::min(longest, kLongestWait)).count());
  const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait);
  for (int i = 0; i < ready; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    const auto found = watched_.find(static_cast<int>(event.data.u64 & 0xffffffffU));
    // Unwatched by an earlier callback of this round, and perhaps watched anew.
    if (found == watched_.end() || tag(found->first, *found->second) != event.data.u64) continue;
    const std::shared_ptr<Watch> watch = found->second;
    watch->on_events(event.events);
  }
  run_timers();
}

void EventLoop::run_timers() {
  // Those that a timer sets now wait for the next round, so that a timer of span zero cannot hold the loop.
  const Clock::time_point now = Clock::now();
  std::vector<TimerId> due;
  for (auto it = timers_.begin(); it != timers_.end() && it->first <= now; ++it) due.push_back(it->second.id);
  for (const TimerId id : due) {
    const auto found = timer_of_.find(id);
    if (found == timer_of_.end()) continue;  // cancelled by an earlier one
    const std::function<void()> work = std::move(found->second->second.work);
    timers_.erase(found->second);
    timer_of_.erase(found);
    work();
  }
}

}  // namespace lockstep::net
