#define LOCKSTEP_PATH path_plain
namespace {
constexpr int kNativeBytes = 16;
}
#include "lockstep/kernels/cpu/path.inc"
