#include "lockstep/comm/shared_memory/shared_file.h"

#include "lockstep/base/error.h"
#include "lockstep/base/huge_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

namespace lockstep::comm {
namespace {

constexpr size_t kFilePage = 4096;

/// After the memory, in a page of its own: tells this file from whatever else a descriptor may name.
using Mark = std::array<uint64_t, 2>;

size_t mark_at(size_t bytes) { return (bytes + kFilePage - 1) / kFilePage * kFilePage; }
size_t file_bytes(size_t bytes) { return mark_at(bytes) + kFilePage; }

Error memory_refused(const char* operation) {
  return Error::environment("{} of memory that processes share: {}", operation, std::strerror(errno));
}

/// At a multiple of a huge page, or it could not be mapped as one.
std::byte* map_file(int descriptor, size_t bytes) {
  void* room = mmap(nullptr, bytes + kHugePageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) throw memory_refused("mapping");
  auto* const begin = static_cast<std::byte*>(room);
  const size_t skip = (kHugePageBytes - reinterpret_cast<uintptr_t>(room) % kHugePageBytes) % kHugePageBytes;
  if (mmap(begin + skip, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, descriptor, 0) == MAP_FAILED) {
    const Error problem = memory_refused("mapping");
    munmap(room, bytes + kHugePageBytes);
    throw problem;
  }
  if (skip > 0) munmap(begin, skip);
  munmap(begin + skip + bytes, kHugePageBytes - skip);
  return begin + skip;
}

}  // namespace

SharedFile::SharedFile(UniqueFd file, size_t bytes) : file_(std::move(file)), bytes_(bytes) {
  memory_ = map_file(file_.get(), file_bytes(bytes));
}

SharedFile::SharedFile(SharedFile&& other) noexcept
    : file_(std::move(other.file_)), bytes_(other.bytes_), memory_(std::exchange(other.memory_, nullptr)) {}

SharedFile::~SharedFile() {
  if (memory_ != nullptr) munmap(memory_, file_bytes(bytes_));
}

SharedFile SharedFile::create(size_t bytes, Take take) {
  UniqueFd file(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) throw memory_refused("creation");
  const auto length = static_cast<off_t>(file_bytes(bytes));
  const int sized = take == Take::Now ? fallocate(file.get(), 0, 0, length) : ftruncate(file.get(), length);
  if (sized != 0) throw memory_refused("allocation");
  // Nobody can shorten it under the feet of the others.
  if (fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) throw memory_refused("sealing");
  SharedFile made(std::move(file), bytes);
  if (getrandom(made.memory_ + mark_at(bytes), sizeof(Mark), 0) != sizeof(Mark)) throw memory_refused("marking");
  return made;
}

std::string SharedFile::address() const {
  const auto* mark = reinterpret_cast<const uint64_t*>(memory_ + mark_at(bytes_));
  return fmt::format("{} {} {} {}", getpid(), file_.get(), mark[0], mark[1]);
}

SharedFile SharedFile::open(const std::string& address, size_t bytes) {
  int pid = 0, descriptor = -1;
  Mark wanted = {};
  LS_CHECK(std::sscanf(address.c_str(), "%d %d %lu %lu", &pid, &descriptor, &wanted[0], &wanted[1]) == 4,
           "'{}' is no address of shared memory", address);
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, descriptor);
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw Error::environment("{} cannot be opened: {}", path, std::strerror(errno));
  struct stat status = {};
  const bool fits = fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
                    status.st_size == static_cast<off_t>(file_bytes(bytes));
  if (!fits) throw Error::environment("{} is something else here", path);
  SharedFile opened(std::move(file), bytes);
  if (std::memcmp(opened.memory_ + mark_at(bytes), wanted.data(), sizeof(Mark)) != 0) {
    throw Error::environment("{} is something else here", path);
  }
  return opened;
}

}  // namespace lockstep::comm
