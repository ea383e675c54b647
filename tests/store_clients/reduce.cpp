#include "store_clients/reduce.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <vector>

namespace lockstep::rendezvous {

bool reduce_as(int rank, uint16_t port) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.numWorkers = kRanks;
  options.timeout = std::chrono::seconds(20);
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  auto gloo = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(20));
  gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  const auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("default_pg", store), rank, kRanks, gloo);
  bool right = true;
  for (int step = 1; step <= 3; ++step) {
    std::vector<at::Tensor> values{at::full({1000}, step * (rank + 1), at::kFloat)};
    group->allreduce(values)->wait();
    right = right && at::equal(values[0], at::full({1000}, step * 3, at::kFloat));
  }
  group->barrier()->wait();
  return right;
}

}  // namespace lockstep::rendezvous
