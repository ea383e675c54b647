#pragma once

#include <chrono>
#include <optional>

namespace lockstep {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

/// A point on the monotonic clock by which a wait must end. Every blocking call takes one.
class Deadline {
 public:
  /// Spans beyond ten years, Milliseconds::max() included, count as ten years.
  static Deadline in(Milliseconds span) {
    constexpr Milliseconds kLongest = std::chrono::hours(24 * 365 * 10);
    return Deadline(Clock::now() + (span < kLongest ? span : kLongest));
  }
  static Deadline at(Clock::time_point when) { return Deadline(when); }

  bool passed() const { return Clock::now() >= when_; }
  /// Zero when passed.
  Milliseconds remaining() const {
    const auto left = std::chrono::ceil<Milliseconds>(when_ - Clock::now());
    return left.count() > 0 ? left : Milliseconds(0);
  }
  Clock::time_point when() const { return when_; }

 private:
  explicit Deadline(Clock::time_point when) : when_(when) {}
  Clock::time_point when_;
};

/// Seconds since `start`.
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace lockstep
