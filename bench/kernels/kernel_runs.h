#pragma once

#include "lockstep/kernels/cpu/table.h"
#include "lockstep/tensor/exact.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// Every elementwise, norm, rotary, softmax, loss, exact-sum and optimizer kernel once, on operands of its own: for counting
/// bytes per second and instructions. Torch-free.
namespace lockstep::bench {

struct KernelRun {
  std::string name;
  int64_t bytes;  ///< that it must read and write, each operand once; a line that is written is not counted as read
  std::function<void()> run;
};

/// `rows` of SmolLM2-135M's widths (576; 1,536 for gates; 16 times fewer of 49,152 for the loss), bf16 and float32 as in
/// training. The paths must run on this processor.
std::vector<std::function<KernelRun()>> kernel_runs(int64_t rows, kernels::cpu::Path path, tensor::ExactPath exact_path);

/// bench_kernels traffic
void bench_traffic();
/// bench_kernels --count NAME: under callgrind, on the AVX2 path; all kernels if NAME is "all". See scripts/count-instructions.
int count_instructions(const std::string& name);

}  // namespace lockstep::bench
