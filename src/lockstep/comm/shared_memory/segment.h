#pragma once

#include "lockstep/comm/shared_memory/shared_file.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

/// The memory that the ranks of one host share, and how they see each other live and die. No waits, no collectives: those
/// are Rings' (rings.h).
namespace lockstep::comm {

/// Slots of a rank's ring: what it may have posted and the others not yet read.
inline constexpr uint32_t kSlots = 8;

struct SegmentShape {
  int size = 1;            ///< ranks
  size_t slot_bytes = 0;   ///< a multiple of 4096
  static SegmentShape of(int size);
};

/// What a slot holds, written with its bytes.
struct SlotLabel {
  uint64_t call = 0;
  uint64_t bytes = 0;
};

/// One rank's part of the control memory. Each field is written by its rank alone but for the counts of waiters.
struct alignas(128) RankBoard {
  std::atomic<uint32_t> posted;           ///< slots ever posted; futex of those who wait for the next
  std::atomic<uint32_t> readers_waiting;
  alignas(64) std::atomic<uint32_t> writer_waiting;  ///< this rank waits until a slot of its ring is free
  alignas(64) std::atomic<uint64_t> call;            ///< entered last, counted from 1
  std::atomic<uint64_t> finished_call;
  std::atomic<uint32_t> beat;             ///< grows while the rank waits
  std::atomic<uint32_t> gave_up;          ///< 1 after a wait without an end
  std::array<std::atomic<char>, 64> what;  ///< name of the call, cut
  std::array<SlotLabel, kSlots> labels;
};

/// Each rank holds a lock on a byte of it from come_alive() to its end; the kernel lifts it when the rank dies. Move-only.
class SharedSegment {
 public:
  /// As SharedFile's. Its pages are taken at once, so that no later write can fail.
  static SharedSegment create(SegmentShape shape);
  std::string address() const { return file_.address(); }
  static SharedSegment open(const std::string& address, SegmentShape shape);

  const SegmentShape& shape() const { return shape_; }
  RankBoard& board(int rank) const;
  /// Slots of `writer` that `reader` has read; futex of the writer.
  std::atomic<uint32_t>& consumed(int reader, int writer) const;
  std::span<std::byte> slot(int rank, uint32_t number) const;

  /// Once per rank, before anyone asks is_alive(). Throws Error{Environment} when the system has no such locks.
  void come_alive(int rank);
  /// Of another rank.
  bool is_alive(int rank) const;

 private:
  SharedSegment(SharedFile file, SegmentShape shape) : file_(std::move(file)), shape_(shape) {}
  std::byte* memory() const { return file_.memory().data(); }
  SharedFile file_;
  SegmentShape shape_;
};

}  // namespace lockstep::comm
