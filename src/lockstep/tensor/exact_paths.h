#pragma once

#include <cstdint>

/// The three paths of exact.h, one source each. Raw pointers and no inline functions: what a source compiled for
/// AVX-512 leaves in the program must not be picked by the linker for a processor without it.
/// Each add returns whether an element had |bits| >= `threshold_bits` (out of range, infinite or NaN); such an element
/// was left out. The threshold is the bit pattern of a positive float: those are ordered as integers.
namespace lockstep::tensor::detail {

bool add_plain(int64_t* acc, const float* values, int64_t count, int scale_bits, uint32_t threshold_bits);
bool add_avx2(int64_t* acc, const float* values, int64_t count, int scale_bits, uint32_t threshold_bits);
bool add_avx512(int64_t* acc, const float* values, int64_t count, int scale_bits, uint32_t threshold_bits);

bool add_bf16_plain(int64_t* acc, const uint16_t* values, int64_t count, int scale_bits, uint32_t threshold_bits);
bool add_bf16_avx2(int64_t* acc, const uint16_t* values, int64_t count, int scale_bits, uint32_t threshold_bits);
bool add_bf16_avx512(int64_t* acc, const uint16_t* values, int64_t count, int scale_bits, uint32_t threshold_bits);

/// Puts in place of adding; acc at a multiple of 64 bytes, count a multiple of 16. What is left out is set to 0.
bool set_avx512(int64_t* acc, const float* values, int64_t count, int scale_bits, uint32_t threshold_bits);
bool set_bf16_avx512(int64_t* acc, const uint16_t* values, int64_t count, int scale_bits, uint32_t threshold_bits);

void to_float_plain(float* out, const int64_t* acc, int64_t count, double scale);
void to_float_avx2(float* out, const int64_t* acc, int64_t count, double scale);
void to_float_avx512(float* out, const int64_t* acc, int64_t count, double scale);

}  // namespace lockstep::tensor::detail
