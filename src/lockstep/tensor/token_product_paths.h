#pragma once

#include <cstdint>

/// The paths of token_product.h, one source each. Raw pointers and no inline functions, as in exact_paths.h.
///
/// Operands are packed into blocks of 32 tokens x 32 rows or columns, in the path's own order; the blocks of the
/// same rows or columns lie one after another, token group by token group.
namespace lockstep::tensor::detail {

inline constexpr int64_t kProductBlock = 32;

/// A slice of a bf16 matrix [tokens, stride] of `width` columns.
struct ProductSlice {
  const uint16_t* values;
  int64_t tokens, width, stride;
};

struct ProductBand {
  const void* rows;      ///< packed
  const void* columns;   ///< packed
  int64_t num_groups;    ///< of 32 tokens
  int64_t num_row_blocks, num_column_blocks;
  float* out;            ///< [32 * num_row_blocks, 32 * num_column_blocks], overwritten
};

struct ProductKernel {
  int64_t block_bytes;  ///< of a packed block
  void (*pack_rows)(const ProductSlice& dy, void* packed);
  void (*pack_columns)(const ProductSlice& x, void* packed);
  void (*multiply)(const ProductBand& band);
};

extern const ProductKernel kProductAmx;
extern const ProductKernel kProductAvx512Bf16;
extern const ProductKernel kProductAvx2;
extern const ProductKernel kProductPlain;

/// Asks Linux for the tiles' data once per process; false when it refuses.
bool amx_granted();

}  // namespace lockstep::tensor::detail
