#pragma once

#include "lockstep/net/event_loop.h"

#include <functional>

namespace lockstep::net {

/// Turns the loop until `done` holds; false after `longest`.
inline bool turn_until(EventLoop& loop, const std::function<bool()>& done, Milliseconds longest = Milliseconds(10'000)) {
  const Deadline deadline = Deadline::in(longest);
  while (!done()) {
    if (deadline.passed()) return false;
    loop.run_once(deadline.remaining());
  }
  return true;
}

}  // namespace lockstep::net
