#include "lockstep/comm/shared_memory/segment.h"

#include "lockstep/base/error.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::comm {
namespace {

constexpr size_t kPage = 4096;
/// One slot of a few ranks. Ranks meet once per slot, and on a busy machine each meeting may cost a turn of the scheduler.
constexpr size_t kSlotBytes = size_t{1} << 20;
/// Of all slots of a host with many ranks.
constexpr size_t kAllSlotsBytes = size_t{256} << 20;

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

size_t consumed_row_bytes(const SegmentShape& shape) {
  return (sizeof(uint32_t) * static_cast<size_t>(shape.size) + 127) / 128 * 128;
}
size_t consumed_at(const SegmentShape& shape) { return sizeof(RankBoard) * static_cast<size_t>(shape.size); }
size_t slots_at(const SegmentShape& shape) {
  return whole_pages(consumed_at(shape) + consumed_row_bytes(shape) * static_cast<size_t>(shape.size));
}
size_t segment_bytes(const SegmentShape& shape) {
  return slots_at(shape) + shape.slot_bytes * kSlots * static_cast<size_t>(shape.size);
}

struct flock lock_on(int rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

SegmentShape SegmentShape::of(int size) {
  const size_t share = kAllSlotsBytes / (kSlots * static_cast<size_t>(size));
  return {size, std::clamp(share / kPage * kPage, 16 * kPage, kSlotBytes)};
}

SharedSegment SharedSegment::create(SegmentShape shape) {
  return {SharedFile::create(segment_bytes(shape), SharedFile::Take::Now), shape};
}

SharedSegment SharedSegment::open(const std::string& address, SegmentShape shape) {
  return {SharedFile::open(address, segment_bytes(shape)), shape};
}

RankBoard& SharedSegment::board(int rank) const {
  return reinterpret_cast<RankBoard*>(memory())[rank];
}

std::atomic<uint32_t>& SharedSegment::consumed(int reader, int writer) const {
  std::byte* row = memory() + consumed_at(shape_) + consumed_row_bytes(shape_) * static_cast<size_t>(reader);
  return reinterpret_cast<std::atomic<uint32_t>*>(row)[writer];
}

std::span<std::byte> SharedSegment::slot(int rank, uint32_t number) const {
  const size_t index = static_cast<size_t>(rank) * kSlots + number % kSlots;
  return {memory() + slots_at(shape_) + index * shape_.slot_bytes, shape_.slot_bytes};
}

void SharedSegment::come_alive(int rank) {
  // A lock of the open file, not of the process: so ranks may be threads of one process, too.
  struct flock lock = lock_on(rank);
  if (fcntl(file_.descriptor(), F_OFD_SETLK, &lock) != 0) {
    throw Error::environment("locking of memory that processes share: {}", std::strerror(errno));
  }
}

bool SharedSegment::is_alive(int rank) const {
  struct flock lock = lock_on(rank);
  return fcntl(file_.descriptor(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace lockstep::comm
