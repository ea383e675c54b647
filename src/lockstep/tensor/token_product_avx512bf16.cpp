#include "lockstep/tensor/token_product_paths.h"

#include <immintrin.h>

namespace lockstep::tensor::detail {
namespace {

/// Two tokens of a chain; the instruction adds the high one first.
using Element = uint32_t;
constexpr int64_t kBlockElements = 512;
constexpr int kSteps = 8, kLanes = 16, kRows = 8, kParts = 2;
typedef float Lanes __attribute__((vector_size(64)));

inline Lanes multiply_add(Lanes sum, Element row, const Element* columns) {
  const auto both_rows = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(row)));
  return _mm512_dpbf16_ps(sum, both_rows, reinterpret_cast<__m512bh>(_mm512_loadu_si512(columns)));
}

#include "lockstep/tensor/token_product_chains.inc"

void pack_block(const uint16_t* from, int64_t stride, Element* to) {
  for (int64_t chain = 0; chain < 2; ++chain) {
    for (int64_t step = 0; step < kSteps; ++step, to += 32) {
      const uint16_t* high = from + (4 * step + chain) * stride;
      const uint16_t* low = high + 2 * stride;
      for (int i = 0; i < 32; ++i) to[i] = static_cast<uint32_t>(high[i]) << 16 | low[i];
    }
  }
}

void pack(const ProductSlice& slice, void* packed) { pack_slice(slice, packed, pack_block); }

}  // namespace

const ProductKernel kProductAvx512Bf16 = {
    .block_bytes = kBlockElements * sizeof(Element),
    .pack_rows = pack,
    .pack_columns = pack,
    .multiply = multiply_band};

}  // namespace lockstep::tensor::detail
