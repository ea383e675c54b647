#pragma once

#include "lockstep/tensor/exact.h"

#include <cstdint>
#include <span>

namespace lockstep::tensor {

/// out[i] = the bit pattern of the bfloat16 nearest to values[i], ties to even, as c10::BFloat16 rounds: beyond its range
/// infinite, every NaN 0x7FC0. `path` chooses instructions, never bits.
void round_to_bf16(std::span<uint16_t> out, std::span<const float> values, ExactPath path = best_exact_path());

}  // namespace lockstep::tensor
