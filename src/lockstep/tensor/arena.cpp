#include "lockstep/tensor/arena.h"

#include "lockstep/base/error.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace lockstep::tensor {
namespace {

constexpr size_t kUnit = 64;  ///< of sizes and addresses, and the bytes of a header
constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kSlabBytes = size_t{256} << 20;  ///< of address space: untouched pages cost nothing

size_t whole(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Which addresses are an arena's, asked at every deletion without a lock. Ranges are only ever added.
class Slabs {
 public:
  bool add(uintptr_t begin, size_t bytes) {
    const std::lock_guard lock(mutex_);
    const size_t count = count_.load(std::memory_order_relaxed);
    if (count == ranges_.size()) return false;
    ranges_[count] = {begin, bytes};
    count_.store(count + 1, std::memory_order_release);
    return true;
  }
  bool hold(const void* data) const {
    const auto address = reinterpret_cast<uintptr_t>(data);
    const size_t count = count_.load(std::memory_order_acquire);
    return std::any_of(ranges_.begin(), ranges_.begin() + static_cast<std::ptrdiff_t>(count),
                       [&](const Range& range) { return address - range.begin < range.bytes; });
  }

 private:
  struct Range {
    uintptr_t begin;
    size_t bytes;
  };
  std::mutex mutex_;  ///< of those who add
  std::array<Range, 1024> ranges_{};
  std::atomic<size_t> count_ = 0;
};
Slabs& slabs() {
  static auto* const the_slabs = new Slabs;
  return *the_slabs;
}

/// First fit by address: what is freed last in, first out leaves no holes, and pages beyond the largest grain stay untouched.
class Arena {
 public:
  /// In front of every block.
  struct alignas(kUnit) Header {
    Arena* arena;
    size_t bytes;  ///< with the header
  };
  static_assert(sizeof(Header) == kUnit);

  /// Null when the kernel refuses address space.
  Header* take(size_t bytes) {
    const size_t wanted = whole(bytes, kUnit) + sizeof(Header);
    const std::lock_guard lock(mutex_);
    auto hole = std::find_if(free_.begin(), free_.end(), [&](const auto& each) { return each.second >= wanted; });
    if (hole == free_.end()) {
      if (!grow(wanted)) return nullptr;
      hole = std::find_if(free_.begin(), free_.end(), [&](const auto& each) { return each.second >= wanted; });
    }
    const auto [begin, size] = *hole;
    free_.erase(hole);
    if (size > wanted) free_.emplace(begin + wanted, size - wanted);
    ++live_;
    in_use_ += wanted;
    highest_ = std::max(highest_, in_use_);
    return new (reinterpret_cast<void*>(begin)) Header{this, wanted};
  }

  void give(Header* header) {
    const std::lock_guard lock(mutex_);
    --live_;
    in_use_ -= header->bytes;
    add_free(reinterpret_cast<uintptr_t>(header), header->bytes);
  }

  void release_if_idle() {
    const std::lock_guard lock(mutex_);
    if (live_ > 0) return;
    for (const auto& [begin, bytes] : free_) madvise(reinterpret_cast<void*>(begin), bytes, MADV_DONTNEED);
  }

  void add_to(ArenaUse& use) {
    const std::lock_guard lock(mutex_);
    use.live_blocks += live_;
    use.mapped_bytes += mapped_;
    use.highest_bytes += highest_;
  }

 private:
  bool grow(size_t wanted) {
    const size_t bytes = std::max(kSlabBytes, whole(wanted, kHuge)) + kHuge;
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return false;
    if (!slabs().add(reinterpret_cast<uintptr_t>(mapped), bytes)) {
      munmap(mapped, bytes);
      return false;
    }
    madvise(mapped, bytes, MADV_HUGEPAGE);  // a wish: a kernel without huge pages gives small ones
    mapped_ += bytes;
    const uintptr_t begin = whole(reinterpret_cast<uintptr_t>(mapped), kHuge);
    add_free(begin, reinterpret_cast<uintptr_t>(mapped) + bytes - begin);
    return true;
  }

  /// Joins it with free neighbours. Slabs are never unmapped, so two that lie together are one.
  void add_free(uintptr_t begin, size_t bytes) {
    const auto after = free_.lower_bound(begin);
    if (after != free_.end() && after->first == begin + bytes) {
      bytes += after->second;
      free_.erase(after);
    }
    const auto next = free_.lower_bound(begin);
    if (next != free_.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second == begin) {
        before->second += bytes;
        return;
      }
    }
    free_.emplace(begin, bytes);
  }

  std::mutex mutex_;  ///< tensors may be freed by other threads
  std::map<uintptr_t, size_t> free_;
  size_t live_ = 0, in_use_ = 0, highest_ = 0, mapped_ = 0;
};

/// Arenas live as long as the process: tensors in them may outlive everything else.
struct ArenaPool {
  std::mutex mutex;
  std::vector<Arena*> all, idle;
};
ArenaPool& pool() {
  static auto* const the_pool = new ArenaPool;
  return *the_pool;
}

thread_local Arena* current = nullptr;
thread_local Arena* last = nullptr;  ///< its pages lie near this thread's core

class ArenaAllocator final : public c10::Allocator {
 public:
  /// One per process.
  explicit ArenaAllocator(c10::Allocator* usual) { usual_ = usual; }

  c10::DataPtr allocate(size_t bytes) override {
    if (current != nullptr && bytes >= kLeastArenaBytes) {
      if (Arena::Header* header = current->take(bytes)) return data_at(header + 1);
    }
    return data_at(usual_->raw_allocate(bytes));
  }
  /// libtorch asks for memory without an owner, too (oneDNN's scratch), so there is one deleter for both kinds.
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }

 private:
  static c10::DataPtr data_at(void* data) { return {data, data, &give_back, c10::Device(c10::DeviceType::CPU)}; }
  static void give_back(void* data) {
    if (!slabs().hold(data)) return usual_->raw_deallocate(data);
    auto* header = static_cast<Arena::Header*>(data) - 1;
    header->arena->give(header);
  }
  static inline c10::Allocator* usual_ = nullptr;
};

/// Once per process. What is asked for outside a scope is passed on.
void stand_before_usual_allocator() {
  static const bool done = [] {
    c10::SetCPUAllocator(new ArenaAllocator(c10::GetCPUAllocator()));
    return true;
  }();
  static_cast<void>(done);
}

Arena* take_arena() {
  ArenaPool& arenas = pool();
  const std::lock_guard lock(arenas.mutex);
  if (arenas.idle.empty()) return arenas.all.emplace_back(new Arena);
  auto found = std::find(arenas.idle.begin(), arenas.idle.end(), last);
  if (found == arenas.idle.end()) found = std::prev(arenas.idle.end());
  Arena* arena = *found;
  arenas.idle.erase(found);
  return arena;
}

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kInUse = false;
#else
constexpr bool kInUse = true;
#endif

}  // namespace

ArenaScope::ArenaScope() {
  if (!kInUse) return;
  LS_CHECK(current == nullptr, "a scope of an arena in another one");
  stand_before_usual_allocator();
  current = last = take_arena();
}

ArenaScope::~ArenaScope() {
  if (!kInUse) return;
  const std::lock_guard lock(pool().mutex);
  pool().idle.push_back(current);
  current = nullptr;
}

ArenaUse arena_use() {
  ArenaPool& arenas = pool();
  const std::lock_guard lock(arenas.mutex);
  ArenaUse use;
  use.arenas = arenas.all.size();
  for (Arena* arena : arenas.all) arena->add_to(use);
  return use;
}

void release_idle_arenas() {
  ArenaPool& arenas = pool();
  const std::lock_guard lock(arenas.mutex);
  for (Arena* arena : arenas.idle) arena->release_if_idle();
}

}  // namespace lockstep::tensor
