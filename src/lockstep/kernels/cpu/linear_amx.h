#pragma once

#include <cstddef>
#include <cstdint>

/// y_RC = x_RK w, plus a bias, in bf16 on AMX tiles (docs/design/speed.md, "Linear layers"). Torch-free. Thread-safe.
///
/// Bits: products are added in float32 along the contraction in the order that tensor/token_product.h defines for tokens
/// (groups of 32, even and odd elements apart), then the bias; the result is rounded once to nearest even. So a row's
/// bits depend on that row and on w alone, not on how many rows or columns there are.
namespace lockstep::kernels::cpu::amx {

enum class WeightLayout {
  ColumnsFirst,  ///< w_CK: y = x w^T, a forward pass
  InnerFirst,    ///< w_KC: y = x w, the gradient of the input
};

struct LinearProduct {
  const uint16_t* x_RK;
  const uint16_t* w;
  WeightLayout layout;
  const float* bias_C;  ///< rounded to bf16 before it is added; null: none
  uint16_t* y_RC;
  int64_t rows, inner, columns;
};

/// Whole groups and blocks only; small products are not worth the packing of w.
bool linear_fits(int64_t inner, int64_t columns);
/// What linear_product works in: `workspace` is aligned to 64 bytes.
size_t workspace_bytes_linear(const LinearProduct& product);
/// Only where available() and linear_fits().
void linear_product(const LinearProduct& product, void* workspace);

}  // namespace lockstep::kernels::cpu::amx
