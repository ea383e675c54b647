// usage: bench_comm [PROCESSES [MILLIONS [PAIRS]]]
// What an update sends between processes of one host: the reduce-scatter of int64 sums and the all-gather of bfloat16
// weights, in segments of 3.5 million elements as a block of SmolLM2-135M has (default: 2 processes, 135 million elements,
// 9 pairs). Shared memory and gloo take turns; the results are compared first.
#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/comm/communicator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

using namespace lockstep;

constexpr int64_t kSegment = int64_t{7} << 19;

struct CarrierTimes {
  std::vector<double> reduce, gather;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

std::vector<at::Tensor> parts(const at::Tensor& values, int64_t each) {
  std::vector<at::Tensor> result;
  for (int64_t at = 0; at < values.numel(); at += each) result.push_back(values.narrow(0, at, each));
  return result;
}

void pass(comm::Communicator& comm, const at::Tensor& sums, const at::Tensor& weights, CarrierTimes* times) {
  comm.barrier("start");
  const auto start = Clock::now();
  for (at::Tensor segment : parts(sums, kSegment)) {
    const int64_t n = kSegment / comm.size();
    at::Tensor mine = segment.narrow(0, n * comm.rank(), n);
    comm.reduce_scatter_sum(segment, mine, "reduce-scatter");
  }
  comm.barrier("between");
  const auto between = Clock::now();
  for (at::Tensor segment : parts(weights, kSegment)) {
    const int64_t n = kSegment / comm.size();
    comm.all_gather(segment.narrow(0, n * comm.rank(), n), segment, "all-gather");
  }
  comm.barrier("end");
  if (times == nullptr) return;
  times->reduce.push_back(std::chrono::duration<double>(between - start).count());
  times->gather.push_back(seconds_since(between));
}

void check(comm::Communicator& gloo, comm::Communicator& shared) {
  std::vector<at::Tensor> results;
  for (comm::Communicator* comm : {&gloo, &shared}) {
    at::Tensor values = at::arange(kSegment, at::kLong).mul(comm->rank() + 3);
    at::Tensor mine = values.narrow(0, comm->rank() * (kSegment / comm->size()), kSegment / comm->size());
    comm->reduce_scatter_sum(values, mine, "check");
    results.push_back(mine.clone());
  }
  LS_CHECK(results[0].equal(results[1]), "gloo and shared memory differ");
}

void report(const char* name, const CarrierTimes& times, double reduce_bytes, double gather_bytes) {
  fmt::print("{:13} reduce-scatter {:7.1f} ms ({:.2f} GB/s sent per rank), all-gather {:6.1f} ms ({:.2f} GB/s)\n", name,
             1e3 * median(times.reduce), reduce_bytes / median(times.reduce) / 1e9, 1e3 * median(times.gather),
             gather_bytes / median(times.gather) / 1e9);
}

void take_turns(int rank, int size, int64_t segments, int pairs, const fs::path& folder) {
  comm::GlooOptions options;
  options.rank = rank;
  options.size = size;
  options.store_file = (folder / "gloo").string();
  const auto gloo = comm::make_gloo(options);
  options.store_file = (folder / "shared").string();
  const auto shared = comm::make_processes(options, comm::Carrier::SharedMemory);
  check(*gloo, *shared);
  at::Tensor sums = at::zeros({segments * kSegment}, at::kLong);
  at::Tensor weights = at::zeros({segments * kSegment}, at::kBFloat16);
  pass(*gloo, sums, weights, nullptr);
  pass(*shared, sums, weights, nullptr);
  CarrierTimes by_gloo, by_memory;
  for (int pair = 0; pair < pairs; ++pair) {
    if (pair % 2 == 0) pass(*gloo, sums, weights, &by_gloo);
    pass(*shared, sums, weights, &by_memory);
    if (pair % 2 == 1) pass(*gloo, sums, weights, &by_gloo);
  }
  if (rank != 0) return;
  const double sent = static_cast<double>(sums.numel()) * (size - 1) / size;
  fmt::print("{} processes, {} million elements, medians of {} pairs\n", size, sums.numel() / 1'000'000, pairs);
  report("gloo", by_gloo, 8 * sent, 2 * sent);
  report("shared memory", by_memory, 8 * sent, 2 * sent);
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::stoi(argv[1]) : 2;
  const int64_t segments = std::max<int64_t>(1, (argc > 2 ? std::stoll(argv[2]) : 135) * 1'000'000 / kSegment);
  const int pairs = argc > 3 ? std::stoi(argv[3]) : 9;
  const TempFolder folder("lockstep-bench");
  std::vector<pid_t> peers;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = fork();  // before libtorch starts a thread
    if (pid != 0) {
      peers.push_back(pid);
      continue;
    }
    try {
      take_turns(rank, size, segments, pairs, folder.path());
    } catch (const std::exception& problem) {
      fmt::print(stderr, "bench_comm: {}\n", problem.what());
      _exit(1);
    }
    std::fflush(stdout);
    _exit(0);
  }
  int failed = 0;
  for (const pid_t pid : peers) {
    int status = 0;
    waitpid(pid, &status, 0);
    if (status != 0) failed = 1;
  }
  return failed;
}
