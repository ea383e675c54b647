// bench_kernels [linear|attention|pointwise|gradients|random|traffic] [bf16|float32]: verifies every kernel, then times it on
// one thread (traffic: bytes per second on one and on all). bench_kernels --count all|NAME: scripts/count-instructions.
// Run with OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 MKL_CBWR=AVX512,STRICT (or AVX2,STRICT).
#include "bench.h"
#include "kernel_runs.h"

#include "lockstep/base/philox.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <fmt/format.h>

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace lockstep::bench {

at::Tensor random(at::IntArrayRef shape, at::ScalarType dtype, uint64_t ordinal) {
  at::Tensor x = at::empty(shape, at::kFloat);
  std::vector<uint32_t> words(static_cast<size_t>(x.numel()));
  RandomStream{.purpose = RandomPurpose::Test, .ordinal = ordinal}.fill(words.data(), 0, words.size());
  float* out = x.mutable_data_ptr<float>();
  for (size_t i = 0; i < words.size(); ++i) out[i] = static_cast<float>(words[i]) * 0x1p-31F - 1;
  return x.to(dtype);
}

double best_seconds(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_of = [&](int64_t calls) {
    const auto start = Clock::now();
    for (int64_t i = 0; i < calls; ++i) call();
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  call();
  const int64_t calls = std::max<int64_t>(1, static_cast<int64_t>(0.004 / std::max(1e-7, seconds_of(1))));
  double best = 1e9;
  for (int repetition = 0; repetition < 8; ++repetition) {
    best = std::min(best, seconds_of(calls) / static_cast<double>(calls));
  }
  return best;
}

void require_close(const std::string& what, const at::Tensor& got, const at::Tensor& wanted, double bound) {
  const at::Tensor difference = got.to(at::kDouble) - wanted.to(at::kDouble);
  const double error = (difference.norm() / wanted.to(at::kDouble).norm()).item<double>();
  if (error <= bound) return;
  fmt::print(stderr, "{} is wrong: relative error {:.3g}, at most {:.3g} was expected\n", what, error, bound);
  std::exit(70);
}

double product_limit(at::ScalarType dtype) {
  double best = 0;
  for (const int64_t size : {512, 1024, 1536}) {
    const at::Tensor a = random({size, size}, dtype, 1);
    const at::Tensor b = random({size, size}, dtype, 2);
    at::Tensor c = at::empty({size, size}, a.options());
    const double flops = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
    best = std::max(best, flops / best_seconds([&] { at::mm_out(c, a, b); }));
  }
  return best;
}

double copy_limit(int64_t bytes) {
  std::vector<char> from(static_cast<size_t>(bytes / 2), 1);
  std::vector<char> to(from.size());
  return static_cast<double>(bytes) / best_seconds([&] { std::memcpy(to.data(), from.data(), from.size()); });
}

}  // namespace lockstep::bench

int main(int argc, char** argv) {
  // By default glibc returns every large block to the kernel, and faulting it in again would be timed with the kernels.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  if (argc == 3 && std::string_view(argv[1]) == "--count") return lockstep::bench::count_instructions(argv[2]);
  at::set_num_threads(1);
  std::string topic = "all";
  std::vector<at::ScalarType> dtypes{at::kBFloat16, at::kFloat};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "bf16") {
      dtypes = {at::kBFloat16};
    } else if (word == "float32") {
      dtypes = {at::kFloat};
    } else if (word == "linear" || word == "attention" || word == "pointwise" || word == "gradients" ||
               word == "random" || word == "traffic") {
      topic = word;
    } else {
      fmt::print(stderr,
                 "Unknown word '{}'. Usage: bench_kernels [linear|attention|pointwise|gradients|random|traffic] [bf16|float32], "
                 "or bench_kernels --count all|NAME\n",
                 word);
      return 2;
    }
  }
  using namespace lockstep::bench;
  fmt::print("torch {}, one thread\n", LOCKSTEP_TORCH_VERSION);
  for (const at::ScalarType dtype : dtypes) {
    if (topic == "all" || topic == "linear") {
      if (dtype == at::kBFloat16) bench_linear_products();
      if (dtype == at::kFloat) for (const int64_t tokens : {215, 1024, 2048}) bench_linear(dtype, tokens);
    }
    if (topic == "all" || topic == "attention") bench_attention(dtype);
    if (topic == "all" || topic == "pointwise") bench_pointwise(dtype);
  }
  if (topic == "all" || topic == "gradients") bench_weight_gradients();
  if (topic == "all" || topic == "random") bench_random();
  if (topic == "all" || topic == "traffic") bench_traffic();
  return 0;
}
