#define LOCKSTEP_PATH path_avx512
namespace {
constexpr int kNativeBytes = 64;
}
#include "lockstep/kernels/cpu/path.inc"
