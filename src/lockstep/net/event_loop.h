#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/base/files.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

namespace lockstep::net {

/// Descriptors and timers of one thread, over epoll. Everything is called on the thread that calls run_once(); nothing
/// here is thread-safe. A callback may watch, change, unwatch and cancel anything, its own descriptor included.
class EventLoop {
 public:
  /// `events`: EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR as epoll_wait gives them.
  using OnEvents = std::function<void(uint32_t events)>;
  using TimerId = uint64_t;

  EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  /// `fd` stays the caller's; unwatch it before closing it. Level-triggered.
  void watch(int fd, uint32_t events, OnEvents on_events);
  void change(int fd, uint32_t events);
  void unwatch(int fd);

  TimerId at(Clock::time_point when, std::function<void()> work);
  /// Spans beyond ten years count as ten years.
  TimerId after(Milliseconds span, std::function<void()> work) { return at(Deadline::in(span).when(), std::move(work)); }
  /// A timer that has fired, or 0, is ignored.
  void cancel(TimerId id);

  /// Waits for the next event or timer, at most `longest`, and calls what is due. Returns early on a signal.
  void run_once(Milliseconds longest);
  /// Readable when an event is waiting: an outer poll() can watch it. Timers do not show there; see until_next_timer().
  int fd() const { return epoll_.get(); }
  /// Zero when one is due; `longest` when there is none before.
  Milliseconds until_next_timer(Milliseconds longest) const;

 private:
  struct Timer {
    TimerId id;
    std::function<void()> work;
  };
  using Timers = std::multimap<Clock::time_point, Timer>;
  struct Watch {
    uint32_t generation;
    OnEvents on_events;
  };
  void run_timers();
  static uint64_t tag(int fd, const Watch& watch);

  UniqueFd epoll_;
  /// Shared, so that a callback which unwatches itself runs to its end.
  std::unordered_map<int, std::shared_ptr<Watch>> watched_;
  uint32_t next_generation_ = 1;
  Timers timers_;
  std::unordered_map<TimerId, Timers::iterator> timer_of_;
  TimerId next_timer_ = 1;
};

}  // namespace lockstep::net
