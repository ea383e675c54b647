// usage: bench_sft limit MODEL TOKENS THREADS [fp32]
//        bench_sft pair MODEL DATA PROCESSES THREADS UPDATES
// Prints one number. Called by scripts/bench with the environment that lockstep gives its workers.
#include "bench_sft.h"

#include "lockstep/base/error.h"
#include "lockstep/train/settings.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace {

using namespace lockstep;

double measure(const std::vector<std::string>& words) {
  if (words.size() >= 4 && words[0] == "limit") {
    bench::LimitOptions options;
    options.model = words[1];
    options.tokens = std::stoll(words[2]);
    options.threads = std::stoi(words[3]);
    return bench::matrix_limit(options, words.size() > 4 && words[4] == "fp32");
  }
  if (words.size() == 6 && words[0] == "pair") {
    bench::PairOptions options;
    options.model = words[1];
    options.data = words[2];
    options.processes = std::stoi(words[3]);
    options.threads = std::stoi(words[4]);
    options.updates = std::stoll(words[5]);
    return bench::exact_over_float32(options);
  }
  throw Error::usage("bench_sft: see the head of bench/sft/main.cpp; scripts/bench sft calls it.");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train::require_bit_stable_settings();
    fmt::print("{:.6f}\n", measure(std::vector<std::string>(argv + 1, argv + argc)));
    return 0;
  } catch (const std::exception& problem) {
    fmt::print(stderr, "bench_sft: {}\n", problem.what());
    return 1;
  }
}
