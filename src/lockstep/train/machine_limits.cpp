#include "lockstep/train/machine_limits.h"

#include "lockstep/base/deadline.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/linear.h"

#include <ATen/ops/full.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <mutex>

namespace lockstep::train {
namespace {

constexpr double kSecondsEach = 0.08;
constexpr int kLeastTries = 5;  ///< also where one takes longer than that: a single one may have lost its core to another program
constexpr int64_t kMatrixSide = 1024;
/// Of each of two streams per thread: beyond what a core has of the last cache. All threads together take 2 GiB at the most.
constexpr int64_t kStreamBytes = int64_t{32} << 20, kAllStreamBytes = int64_t{1} << 30;

/// The shortest of the runs that fit into the time, and of kLeastTries at the least, after two that warm up.
double best_seconds(const std::function<void()>& run) {
  for (int i = 0; i < 2; ++i) run();
  double best = std::numeric_limits<double>::max();
  const Clock::time_point start = Clock::now();
  for (int tries = 0; tries < kLeastTries || seconds_since(start) < kSecondsEach; ++tries) {
    const Clock::time_point begin = Clock::now();
    run();
    best = std::min(best, seconds_since(begin));
  }
  return best;
}

/// The mean over the threads, all at work at once.
double mean_seconds(ThreadTeam& team, const std::function<double()>& measure) {
  std::mutex mutex;  // guards sum
  double sum = 0;
  team.run(static_cast<size_t>(team.size()), [&](size_t, int) {
    const double seconds = measure();
    const std::lock_guard lock(mutex);
    sum += seconds;
  });
  return sum / team.size();
}

}  // namespace

metrics::MachineLimits measure_limits(ThreadTeam& team, at::ScalarType dtype) {
  metrics::MachineLimits limits;
  const double product_s = mean_seconds(team, [&] {
    const at::Tensor a = at::full({kMatrixSide, kMatrixSide}, 0.5, dtype), b = at::full({kMatrixSide, kMatrixSide}, 0.25, dtype);
    return best_seconds([&] { kernels::linear_forward(a, b, {}); });
  });
  limits.flops_per_s = 2.0 * kMatrixSide * kMatrixSide * kMatrixSide / product_s;

  const int64_t elements = std::min(kStreamBytes, kAllStreamBytes / team.size()) / static_cast<int64_t>(sizeof(float));
  const double stream_s = mean_seconds(team, [&] {
    at::Tensor sum = at::full({elements}, 0.5, at::kFloat);
    const at::Tensor x = at::full({elements}, 0.25, at::kFloat);
    return best_seconds([&] { kernels::add_into(sum, x); });
  });
  limits.bytes_per_s = 3.0 * static_cast<double>(elements) * sizeof(float) / stream_s;
  return limits;
}

}  // namespace lockstep::train
