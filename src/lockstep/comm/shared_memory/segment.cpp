#include "lockstep/comm/shared_memory/segment.h"

#include "lockstep/base/error.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep::comm {
namespace {

constexpr size_t kPage = 4096;
/// One slot of a few ranks. Ranks meet once per slot, and on a busy machine each meeting may cost a turn of the scheduler.
constexpr size_t kSlotBytes = size_t{1} << 20;
/// Of all slots of a host with many ranks.
constexpr size_t kAllSlotsBytes = size_t{256} << 20;

/// At the segment's begin.
struct SegmentHead {
  std::array<uint64_t, 2> secret;  ///< tells this segment from whatever else a descriptor may name
};

size_t whole_pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

size_t boards_at() { return kPage; }
size_t consumed_row_bytes(const SegmentShape& shape) {
  return (sizeof(uint32_t) * static_cast<size_t>(shape.size) + 127) / 128 * 128;
}
size_t consumed_at(const SegmentShape& shape) { return boards_at() + sizeof(RankBoard) * static_cast<size_t>(shape.size); }
size_t slots_at(const SegmentShape& shape) {
  return whole_pages(consumed_at(shape) + consumed_row_bytes(shape) * static_cast<size_t>(shape.size));
}
size_t segment_bytes(const SegmentShape& shape) {
  return slots_at(shape) + shape.slot_bytes * kSlots * static_cast<size_t>(shape.size);
}

Error refused(const char* operation) {
  return Error::environment("{} of memory that processes share: {}", operation, std::strerror(errno));
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

SharedSegment::SharedSegment(UniqueFd file, SegmentShape shape) : file_(std::move(file)), shape_(shape) {
  void* mapped = mmap(nullptr, segment_bytes(shape), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (mapped == MAP_FAILED) throw refused("mapping");
  memory_ = static_cast<std::byte*>(mapped);
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : file_(std::move(other.file_)), shape_(other.shape_), memory_(std::exchange(other.memory_, nullptr)) {}

SharedSegment::~SharedSegment() {
  if (memory_ != nullptr) munmap(memory_, segment_bytes(shape_));
}

SharedSegment SharedSegment::create(SegmentShape shape) {
  UniqueFd file(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) throw refused("creation");
  if (fallocate(file.get(), 0, 0, static_cast<off_t>(segment_bytes(shape))) != 0) throw refused("allocation");
  // Nobody can shorten it under the feet of the others.
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) throw refused("sealing");
  SharedSegment segment(std::move(file), shape);
  auto* head = reinterpret_cast<SegmentHead*>(segment.memory_);
  if (getrandom(head->secret.data(), sizeof(head->secret), 0) != sizeof(head->secret)) throw refused("marking");
  return segment;
}

std::string SharedSegment::address() const {
  const auto* head = reinterpret_cast<const SegmentHead*>(memory_);
  return fmt::format("{} {} {} {}", getpid(), file_.get(), head->secret[0], head->secret[1]);
}

SharedSegment SharedSegment::open(const std::string& address, SegmentShape shape) {
  int pid = 0, descriptor = -1;
  SegmentHead wanted = {};
  LS_CHECK(std::sscanf(address.c_str(), "%d %d %lu %lu", &pid, &descriptor, &wanted.secret[0], &wanted.secret[1]) == 4,
           "'{}' is no address of a segment", address);
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, descriptor);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw Error::environment("{} cannot be opened: {}", path, std::strerror(errno));
  struct stat status = {};
  const bool fits = fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                    status.st_size == static_cast<off_t>(segment_bytes(shape));
  if (!fits) throw Error::environment("{} is something else here", path);
  SharedSegment segment(std::move(file), shape);
  if (reinterpret_cast<const SegmentHead*>(segment.memory_)->secret != wanted.secret) {
    throw Error::environment("{} is something else here", path);
  }
  return segment;
}

RankBoard& SharedSegment::board(int rank) const {
  return reinterpret_cast<RankBoard*>(memory_ + boards_at())[rank];
}

std::atomic<uint32_t>& SharedSegment::consumed(int reader, int writer) const {
  std::byte* row = memory_ + consumed_at(shape_) + consumed_row_bytes(shape_) * static_cast<size_t>(reader);
  return reinterpret_cast<std::atomic<uint32_t>*>(row)[writer];
}

std::span<std::byte> SharedSegment::slot(int rank, uint32_t number) const {
  const size_t index = static_cast<size_t>(rank) * kSlots + number % kSlots;
  return {memory_ + slots_at(shape_) + index * shape_.slot_bytes, shape_.slot_bytes};
}

void SharedSegment::come_alive(int rank) {
  // A lock of the open file, not of the process: so ranks may be threads of one process, too.
  struct flock lock = lock_on(rank);
  if (fcntl(file_.get(), F_OFD_SETLK, &lock) != 0) throw refused("locking");
}

bool SharedSegment::is_alive(int rank) const {
  struct flock lock = lock_on(rank);
  return fcntl(file_.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace lockstep::comm
