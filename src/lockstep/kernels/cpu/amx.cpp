#include "lockstep/kernels/cpu/amx.h"

#include "lockstep/base/error.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>

namespace lockstep::kernels::cpu::amx {

bool available() {
  static const bool granted = [] {
    if (!__builtin_cpu_supports("amx-bf16") || !__builtin_cpu_supports("amx-tile") ||
        !__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
      return false;
    }
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM, which older headers lack
    constexpr long kTileData = 18;
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return granted;
}

void* thread_workspace(size_t bytes) {
  // Kept between calls, since fresh memory costs more than a short document.
  constexpr size_t kAlignment = 64;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  thread_local std::unique_ptr<void, Free> room;
  thread_local size_t size = 0;
  if (bytes > size) {
    size = 0;
    room.reset(std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment));
    LS_CHECK(room != nullptr, "no memory for a workspace of {} bytes", bytes);
    size = bytes;
  }
  return room.get();
}

}  // namespace lockstep::kernels::cpu::amx
