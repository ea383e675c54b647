#pragma once

#include <cstdint>
#include <functional>
#include <span>

/// The weight gradient of a linear layer over the tokens of a grain, dw_OI = dy_TO^T x_TI in float32 from bfloat16,
/// in bands of whole rows that stay in the cache until they are taken. Letters: T tokens, O outputs, I inputs.
///
/// Bits are defined by the values and T alone. Tokens are taken in order in groups of 32 (the last is filled up with
/// zeros). Of a group, the even and the odd tokens are summed apart, each by fused multiply-adds in order from zero;
/// the two sums are added, and then added to the element. Everything rounds to nearest even; denormal numbers, read or
/// produced, are zeros. That is what the matrix unit (AMX) does, and what every other path here imitates: all give the
/// same bits. (Which NaN comes out may differ.)
namespace lockstep::tensor {

enum class TokenProductPath {
  Amx,         ///< TDPBF16PS
  Avx512Bf16,  ///< VDPBF16PS, a chain at a time
  Avx2,        ///< widened to float32, with FMA
  Plain,       ///< the same in C++; orders of magnitude slower
};
/// Whether this processor, and for AMX the kernel, runs it.
bool runs(TokenProductPath path);
TokenProductPath best_token_product_path();

struct TokenProduct {
  const uint16_t* dy_TO;  ///< bfloat16 bit patterns, row-major
  const uint16_t* x_TI;
  int64_t tokens, outputs, inputs;
  int64_t dy_stride = 0;  ///< elements from a token of dy to the next; 0: outputs
};

/// Elements [first, first + values.size()) of the flat dw_OI: whole rows.
using TakeBand = std::function<void(int64_t first, std::span<const float> values)>;

/// Calls `take` once for every band, in an order that differs between threads: those that work on the same parameter
/// then seldom wait for one another. Room for packed operands is kept per thread.
void token_product(const TokenProduct& product, const TakeBand& take,
                   TokenProductPath path = best_token_product_path());

}  // namespace lockstep::tensor
