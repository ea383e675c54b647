#pragma once

#include <ATen/core/Tensor.h>

/// Rotary position embedding (Su et al., RoFormer, 2021) in Hugging Face's rotate-half layout: element i of the first
/// half turns with element i of the second. Where the table is narrower than D / 2, only the first elements of a head
/// turn, as if they were one of their own (phi3). Letters: T tokens, N heads, D head width, P positions.
namespace lockstep::kernels {

/// cos_PD2 and sin_PD2: [positions, D / 2 or fewer] in float32 (float64). `inverse_frequencies` has as many (float64);
/// angles are formed in float32 as transformers does unless dtype is float64. `attention_scaling` multiplies both.
struct RopeTable {
  at::Tensor cos_PD2, sin_PD2;
};
RopeTable rope_table(const at::Tensor& inverse_frequencies, int64_t num_positions, double attention_scaling,
                     at::ScalarType dtype);

/// In place on x_TND (bfloat16, float32, float64; rows may be strided: x may be a slice of a fused qkv buffer as long
/// as each token's [N, D] part is contiguous). position_T: int32 [T].
void rope_forward(at::Tensor& x_TND, const at::Tensor& position_T, const RopeTable& table);
/// The inverse rotation of the gradient, in place.
void rope_backward(at::Tensor& dx_TND, const at::Tensor& position_T, const RopeTable& table);

}  // namespace lockstep::kernels
