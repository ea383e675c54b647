#include "lockstep/tensor/token_product_paths.h"

#include <immintrin.h>

namespace lockstep::tensor::detail {
namespace {

constexpr int kLanes = 4, kRows = 4, kParts = 2;
typedef float Lanes __attribute__((vector_size(16)));
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  for (int lane = 0; lane < kLanes; ++lane) c[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  return c;
}

#include "lockstep/tensor/token_product_widened.inc"

}  // namespace

const ProductKernel kProductPlain = kKernel;

}  // namespace lockstep::tensor::detail
