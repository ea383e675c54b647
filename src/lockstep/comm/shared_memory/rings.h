#pragma once

#include "lockstep/base/deadline.h"
#include "lockstep/comm/shared_memory/segment.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep::comm {

/// One rank's view of the segment: each rank writes slots of its own ring, in order, and every other rank reads each of
/// them once, in order. Waits sleep in the kernel (futex), wake ten times a second to look for ranks that have died, and
/// end with the call's deadline. Errors are Error{Peer} and Error{Timeout} as Communicator promises. One thread.
class Rings {
 public:
  /// The other ranks have come alive in the segment.
  Rings(SharedSegment segment, int rank, Milliseconds timeout);

  int rank() const { return rank_; }
  int size() const { return segment_.shape().size; }
  Milliseconds timeout() const { return timeout_; }
  size_t slot_bytes() const { return segment_.shape().slot_bytes; }

  /// A collective call begins, and ends well.
  void enter(const char* what);
  void leave();

  /// The slot to fill next; waits until all others have read what it held.
  std::span<std::byte> next_slot();
  /// The others may read its first `bytes`.
  void post(size_t bytes);
  /// The next slot of `peer`, `bytes` long; waits for it. Its memory is the reader's until done(peer).
  std::span<std::byte> take(int peer, size_t bytes);
  void done(int peer);

 private:
  /// Of one word that only grows (modulo 2^32).
  struct Wait {
    std::atomic<uint32_t>& word;
    std::atomic<uint32_t>& waiters;
    uint32_t target;
    bool over() const { return static_cast<int32_t>(word.load(std::memory_order_seq_cst) - target) >= 0; }
  };
  void wait(const Wait& wait);
  void sleep_until_over(const Wait& wait);
  void look_for_dead(const Wait& wait) const;
  std::string timed_out();
  std::vector<int> without_a_sign() const;
  std::string call_of(int rank) const;
  RankBoard& own() const { return segment_.board(rank_); }

  SharedSegment segment_;
  const int rank_;
  const Milliseconds timeout_;
  const char* what_ = "";
  Deadline deadline_;
  uint64_t call_ = 0;
  uint32_t posted_ = 0;
  std::vector<uint32_t> taken_;  ///< by peer
};

}  // namespace lockstep::comm
