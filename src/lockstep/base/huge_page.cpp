#include "lockstep/base/huge_page.h"

#include <sys/mman.h>

#include <atomic>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace lockstep {

bool take_huge_page(std::byte* page) {
  // A range without any page is refused. Adding nothing takes the first small one and keeps what another may be writing.
  std::atomic_ref(*reinterpret_cast<unsigned char*>(page)).fetch_add(0, std::memory_order_relaxed);
  return madvise(page, kHugePageBytes, MADV_COLLAPSE) == 0;
}

}  // namespace lockstep
