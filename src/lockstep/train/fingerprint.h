#pragma once

#include "lockstep/comm/communicator.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <future>
#include <string>
#include <vector>

namespace lockstep::train {

/// The run's own kernels at fixed shapes on Philox inputs, hashed. Two processes whose fingerprints are equal compute
/// the same bits as far as anyone can see in a tenth of a second.
struct Fingerprint {
  std::vector<std::pair<std::string, uint64_t>> kernels;  ///< in a fixed order
};
Fingerprint take_fingerprint(at::ScalarType compute_dtype);
/// The same by a thread of its own, while the caller reads data: nearly half a second of a start, most of it what libtorch
/// does at its first product.
std::future<Fingerprint> begin_fingerprint(at::ScalarType compute_dtype);

/// Collective. Throws Error{Environment} naming the first kernel whose bits differ and on which ranks.
void require_equal_fingerprints(const Fingerprint& mine, comm::Communicator& comm);

}  // namespace lockstep::train
