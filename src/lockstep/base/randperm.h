#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

/// torch.randperm(n, generator=torch.Generator().manual_seed(seed)) on a CPU, without torch (aten/src/ATen/native/
/// TensorFactories.cpp): below 2^32 / 20 the swap z = random % (n - i); swap(i, i + z) over an mt19937, from there on
/// the inside-out shuffle with 64 random bits per step. Only the low 32 bits of the seed count, as in torch.
std::vector<int64_t> torch_randperm(int64_t n, uint64_t seed);

}  // namespace lockstep
