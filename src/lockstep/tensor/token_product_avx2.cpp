#include "lockstep/tensor/token_product_paths.h"

#include <immintrin.h>

namespace lockstep::tensor::detail {
namespace {

constexpr int kLanes = 8, kRows = 4, kParts = 2;
typedef float Lanes __attribute__((vector_size(32)));
inline Lanes fma(Lanes a, Lanes b, Lanes c) { return _mm256_fmadd_ps(a, b, c); }

#include "lockstep/tensor/token_product_widened.inc"

}  // namespace

const ProductKernel kProductAvx2 = kKernel;

}  // namespace lockstep::tensor::detail
