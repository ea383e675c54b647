// Bytes per second of every memory-bound kernel beside a triad over arrays that are larger than the last cache, by one thread
// and by as many as the machine has cores; and the kernels once each, for callgrind to count their instructions.
#include "kernel_runs.h"

#include "bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>

namespace lockstep::bench {
namespace {

using TrafficClock = std::chrono::steady_clock;

double since(TrafficClock::time_point start) { return std::chrono::duration<double>(TrafficClock::now() - start).count(); }

/// Bytes per second of all threads: each makes its own work, they start together, and the slowest counts. Median of 7.
double rate_of(int threads, const std::function<KernelRun()>& make) {
  std::vector<KernelRun> runs;
  for (int i = 0; i < threads; ++i) runs.push_back(make());
  std::vector<double> seconds;
  for (int turn = 0; turn < 8; ++turn) {
    std::latch ready(threads);
    std::vector<double> own(runs.size());
    std::vector<std::thread> team;
    for (size_t i = 0; i < runs.size(); ++i) {
      team.emplace_back([&, i] {
        ready.arrive_and_wait();
        const auto start = TrafficClock::now();
        runs[i].run();
        own[i] = since(start);
      });
    }
    for (std::thread& thread : team) thread.join();
    if (turn > 0) seconds.push_back(*std::max_element(own.begin(), own.end()));
  }
  std::nth_element(seconds.begin(), seconds.begin() + 3, seconds.end());
  return threads * static_cast<double>(runs[0].bytes) / seconds[3];
}

/// a = b + s c (McCalpin's STREAM), by plain stores: 24 bytes per element, of which 8 written.
KernelRun triad(int64_t bytes_in_all) {
  const auto count = static_cast<size_t>(bytes_in_all / 24);
  auto arrays = std::make_shared<std::vector<std::vector<double>>>(3, std::vector<double>(count, 1.5));
  return {"triad", static_cast<int64_t>(count) * 24, [arrays, count] {
            double* a = (*arrays)[0].data();
            const double *b = (*arrays)[1].data(), *c = (*arrays)[2].data();
            for (size_t i = 0; i < count; ++i) a[i] = b[i] + 3.0 * c[i];
          }};
}

}  // namespace

void bench_traffic() {
  constexpr int64_t kRows = 32768, kTriadBytes = int64_t{768} << 20;
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const auto path = kernels::cpu::table_of(kernels::cpu::Path::Avx512) != nullptr ? kernels::cpu::Path::Avx512
                    : kernels::cpu::table_of(kernels::cpu::Path::Avx2) != nullptr ? kernels::cpu::Path::Avx2
                                                                                  : kernels::cpu::Path::Plain;
  const double limits[2] = {rate_of(1, [] { return triad(kTriadBytes); }),
                            rate_of(cores, [=] { return triad(kTriadBytes / cores); })};
  fmt::print("\ntraffic: triad over {} MB in all, {:.1f} GB/s by one thread, {:.1f} by {}\n", kTriadBytes >> 20,
             limits[0] * 1e-9, limits[1] * 1e-9, cores);
  fmt::print("{:<28}{:>9}{:>12}{:>8}{:>12}{:>8}\n", "kernel", "MB", "GB/s, 1", "share", fmt::format("GB/s, {}", cores), "share");
  for (const auto& make : kernel_runs(kRows, path, tensor::best_exact_path())) {
    const double one = rate_of(1, make), all = rate_of(cores, make);
    const KernelRun run = make();
    fmt::print("{:<28}{:>9.0f}{:>12.1f}{:>6.0f} %{:>12.1f}{:>6.0f} %\n", run.name, static_cast<double>(run.bytes) * 1e-6,
               one * 1e-9, 100 * one / limits[0], all * 1e-9, 100 * all / limits[1]);
  }
}

}  // namespace lockstep::bench

/// callgrind collects inside this function alone, and writes a file after each call.
extern "C" [[gnu::noinline, gnu::visibility("default")]] void lockstep_counted(const std::function<void()>& run) {
  run();
  asm volatile("" ::: "memory");
}

namespace lockstep::bench {

int count_instructions(const std::string& name) {
  constexpr int64_t kRows = 64;
  if (kernels::cpu::table_of(kernels::cpu::Path::Avx2) == nullptr) {
    fmt::print(stderr, "--count needs a processor with AVX2 and FMA: the table is of that path\n");
    return 4;
  }
  bool found = false;
  for (const auto& make : kernel_runs(kRows, kernels::cpu::Path::Avx2, tensor::ExactPath::Avx2)) {
    const KernelRun run = make();
    if (name != "all" && name != run.name) continue;
    found = true;
    lockstep_counted(run.run);
    fmt::print("{}\n", run.name);
  }
  if (found) return 0;
  fmt::print(stderr, "--count: no kernel '{}'. 'all' runs and names all of them.\n", name);
  return 2;
}

}  // namespace lockstep::bench
