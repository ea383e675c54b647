// usage: bench_sft MODEL DATA PROCESSES THREADS UPDATES bf16|fp32
// Prints a line of JSON. Called by scripts/bench with the environment that lockstep gives its workers.
#include "bench_sft.h"

#include "lockstep/base/error.h"
#include "lockstep/train/settings.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace {

using namespace lockstep;

bench::PairOptions read_options(const std::vector<std::string>& words) {
  if (words.size() != 6 || (words[5] != "bf16" && words[5] != "fp32")) throw Error::usage("bench_sft: see the head of bench/sft/main.cpp; scripts/bench calls it.");
  bench::PairOptions options;
  options.model = words[0];
  options.data = words[1];
  options.processes = std::stoi(words[2]);
  options.threads = std::stoi(words[3]);
  options.updates = std::stoll(words[4]);
  options.dtype = words[5] == "bf16" ? at::kBFloat16 : at::kFloat;
  return options;
}

void print_phases(const char* name, const bench::Phases& phases) {
  fmt::print("{}: ms per token {:.4f}: compute {:.4f}, reduce and norm {:.4f}, optimizer {:.4f}\n", name, phases.step,
             phases.compute, phases.reduce, phases.optimizer);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train::require_bit_stable_settings();
    const bench::PairResult result = bench::measure_pairs(read_options({argv + 1, argv + argc}));
    print_phases("exact", result.exact);
    print_phases("float32", result.float32);
    fmt::print("{{\"exact_over_float32\": {:.6f}, \"share_of_matrix_limit\": {:.6f}, \"matrix_limit\": {:.2f}, \"libtorch_limit\": {:.2f}, "
               "\"tokens_per_second\": {:.2f}}}\n",
               result.exact_over_float32, result.share_of_matrix_limit, result.matrix_limit, result.libtorch_limit,
               result.tokens_per_second);
    return 0;
  } catch (const std::exception& problem) {
    fmt::print(stderr, "bench_sft: {}\n", problem.what());
    return 1;
  }
}
