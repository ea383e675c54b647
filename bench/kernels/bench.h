#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep::bench {

/// Values between -1 and 1, the same in every run.
at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype, uint64_t ordinal);

/// Seconds of one call: the best of several repetitions of at least a few milliseconds each. The first call, which
/// generates code, is not counted.
double best_seconds(const std::function<void()>& call);

/// ||a - b|| / ||b||; the program stops with exit code 70 when it is above `bound`: nothing wrong is timed.
void require_close(const std::string& what, const at::Tensor& got, const at::Tensor& wanted, double bound);

/// FLOP/s of the best product of the dtype found on this machine (a few square ones): the limit for products.
double product_limit(at::ScalarType dtype);
/// Bytes/s, read plus written, of memcpy over `bytes` in all: the limit for memory-bound kernels.
double copy_limit(int64_t bytes);

void bench_linear(at::ScalarType dtype, int64_t tokens);
/// Forward and input gradient in bfloat16, in turns with at::mm.
void bench_linear_products();
void bench_attention(at::ScalarType dtype);
void bench_pointwise(at::ScalarType dtype);
/// In bfloat16.
void bench_weight_gradients();
/// The same for every dtype.
void bench_random();

}  // namespace lockstep::bench
