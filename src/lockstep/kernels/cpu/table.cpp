#include "lockstep/kernels/cpu/table.h"

#include <initializer_list>

namespace lockstep::kernels::cpu {

namespace path_plain {
extern const Table kTable;
}
namespace path_avx2 {
extern const Table kTable;
}
namespace path_avx512 {
extern const Table kTable;
}

const Table* table_of(Path path) {
  switch (path) {
    case Path::Avx512:
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                     __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                 ? &path_avx512::kTable
                 : nullptr;
    case Path::Avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &path_avx2::kTable : nullptr;
    case Path::Plain:
      return &path_plain::kTable;
  }
  return nullptr;
}

const Table& table() {
  static const Table& best = []() -> const Table& {
    for (const Path path : {Path::Avx512, Path::Avx2}) {
      if (const Table* found = table_of(path)) return *found;
    }
    return path_plain::kTable;
  }();
  return best;
}

}  // namespace lockstep::kernels::cpu
