#define LOCKSTEP_PATH path_avx2
namespace {
constexpr int kNativeBytes = 32;
}
#include "lockstep/kernels/cpu/path.inc"
