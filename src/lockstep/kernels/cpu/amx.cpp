#include "lockstep/kernels/cpu/amx.h"

#include <sys/syscall.h>
#include <unistd.h>

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

}  // namespace lockstep::kernels::cpu::amx
