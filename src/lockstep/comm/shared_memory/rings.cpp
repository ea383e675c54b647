#include "lockstep/comm/shared_memory/rings.h"

#include "lockstep/base/error.h"

#include <fmt/ranges.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>
#include <string_view>
#include <thread>
#include <utility>

namespace lockstep::comm {
namespace {

/// How often a rank that waits looks whether the others live.
constexpr Milliseconds kLook{100};
/// How long a rank that has run out of time listens for signs of those who wait as well.
constexpr Milliseconds kListen{500};

/// False when `longest` has passed first. Not the private kind of futex: the word is known by its place in the file.
bool futex_wait(std::atomic<uint32_t>& word, uint32_t seen, Milliseconds longest) {
  const timespec span{longest.count() / 1000, longest.count() % 1000 * 1'000'000};
  return syscall(SYS_futex, &word, FUTEX_WAIT, seen, &span, nullptr, 0) == 0 || errno != ETIMEDOUT;
}

void publish(std::atomic<uint32_t>& word, uint32_t value, const std::atomic<uint32_t>& waiters) {
  // Both sequentially consistent: either this sees the waiter's count, or the waiter sees the value before it sleeps.
  word.store(value, std::memory_order_seq_cst);
  if (waiters.load(std::memory_order_seq_cst) > 0) syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

Rings::Rings(SharedSegment segment, int rank, Milliseconds timeout)
    : segment_(std::move(segment)),
      rank_(rank),
      timeout_(timeout),
      deadline_(Deadline::in(timeout)),
      taken_(static_cast<size_t>(segment_.shape().size), 0) {}

void Rings::enter(const char* what) {
  what_ = what;
  deadline_ = Deadline::in(timeout_);
  ++call_;
  RankBoard& board = own();
  const std::string_view text = what;
  for (size_t i = 0; i < board.what.size(); ++i) {
    const bool fits = i < text.size() && i + 1 < board.what.size();
    board.what[i].store(fits ? text[i] : '\0', std::memory_order_relaxed);
    if (!fits) break;
  }
  board.call.store(call_, std::memory_order_release);
}

void Rings::leave() { own().finished_call.store(call_, std::memory_order_release); }

std::span<std::byte> Rings::next_slot() {
  for (int reader = 0; reader < size(); ++reader) {
    if (reader != rank_) wait({segment_.consumed(reader, rank_), own().writer_waiting, posted_ + 1 - kSlots});
  }
  return segment_.slot(rank_, posted_);
}

void Rings::post(size_t bytes) {
  own().labels[posted_ % kSlots] = {call_, bytes};
  publish(own().posted, ++posted_, own().readers_waiting);
}

std::span<std::byte> Rings::take(int peer, size_t bytes) {
  RankBoard& board = segment_.board(peer);
  const uint32_t number = taken_[static_cast<size_t>(peer)];
  wait({board.posted, board.readers_waiting, number + 1});
  const SlotLabel label = board.labels[number % kSlots];
  LS_CHECK(label.call == call_ && label.bytes == bytes,
           "ranks make different calls: rank {} wants {} bytes of rank {} in call {} '{}', which sent {} in call {} and is now "
           "at {}",
           rank_, bytes, peer, call_, what_, label.bytes, label.call, call_of(peer));
  return segment_.slot(peer, number).first(bytes);
}

void Rings::done(int peer) {
  uint32_t& taken = taken_[static_cast<size_t>(peer)];
  publish(segment_.consumed(rank_, peer), ++taken, segment_.board(peer).writer_waiting);
}

void Rings::wait(const Wait& wait) {
  if (wait.over()) return;
  wait.waiters.fetch_add(1, std::memory_order_seq_cst);
  try {
    sleep_until_over(wait);
  } catch (...) {
    wait.waiters.fetch_sub(1, std::memory_order_relaxed);
    throw;
  }
  wait.waiters.fetch_sub(1, std::memory_order_relaxed);
}

void Rings::sleep_until_over(const Wait& wait) {
  while (true) {
    const uint32_t seen = wait.word.load(std::memory_order_seq_cst);
    if (wait.over()) return;
    if (futex_wait(wait.word, seen, std::clamp(deadline_.remaining(), Milliseconds(1), kLook))) continue;
    own().beat.fetch_add(1, std::memory_order_relaxed);
    look_for_dead(wait);
    if (deadline_.passed() && !wait.over()) throw Error::timeout("{}", timed_out());
  }
}

void Rings::look_for_dead(const Wait& wait) const {
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank_ || segment_.is_alive(peer)) continue;
    // Who has done its part of this call may go.
    if (segment_.board(peer).finished_call.load(std::memory_order_acquire) >= call_ || wait.over()) continue;
    const bool gave_up = segment_.board(peer).gave_up.load(std::memory_order_relaxed) != 0;
    throw Error::peer("{}: a peer of rank {} closed its connection or failed: rank {} {} ({})", what_, rank_, peer,
                      gave_up ? "gave up waiting" : "is gone", call_of(peer));
  }
}

std::string Rings::call_of(int rank) const {
  const RankBoard& board = segment_.board(rank);
  std::string what;
  for (const std::atomic<char>& letter : board.what) {
    const char c = letter.load(std::memory_order_relaxed);
    if (c == '\0') break;
    what += c;
  }
  return fmt::format("call {} '{}'", board.call.load(std::memory_order_acquire), what);
}

std::string Rings::timed_out() {
  own().gave_up.store(1, std::memory_order_relaxed);
  const std::vector<int> missing = without_a_sign();
  std::string where;
  for (int peer = 0; peer < size(); ++peer) {
    if (std::find(missing.begin(), missing.end(), peer) != missing.end()) continue;
    where += fmt::format("{}rank {} at {}", where.empty() ? "" : ", ", peer, call_of(peer));
  }
  return fmt::format("{}: no answer within {} s. Waiting: {}. Missing: {}.", what_,
                     std::chrono::duration<double>(timeout_).count(), where,
                     missing.empty() ? "none (the ranks wait in different calls)" : fmt::format("{}", fmt::join(missing, " ")));
}

/// A rank that waits as well beats, or has given up, too. One that computes or is stopped does neither.
std::vector<int> Rings::without_a_sign() const {
  std::vector<uint32_t> beats;
  for (int peer = 0; peer < size(); ++peer) beats.push_back(segment_.board(peer).beat.load(std::memory_order_relaxed));
  const Deadline deadline = Deadline::in(kListen);
  std::vector<int> silent;
  do {
    std::this_thread::sleep_for(Milliseconds(20));
    silent.clear();
    for (int peer = 0; peer < size(); ++peer) {
      const RankBoard& board = segment_.board(peer);
      const bool heard = board.gave_up.load(std::memory_order_relaxed) != 0 ||
                         board.beat.load(std::memory_order_relaxed) != beats[static_cast<size_t>(peer)];
      if (!heard) silent.push_back(peer);
    }
  } while (!silent.empty() && !deadline.passed());
  return silent;
}

}  // namespace lockstep::comm
