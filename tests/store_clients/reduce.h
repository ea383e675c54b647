#pragma once

#include <cstdint>

namespace lockstep::rendezvous {

inline constexpr int kRanks = 2;

/// What a worker does that was started with env://: joins the store, makes a gloo group over it, and reduces. Whether
/// the sums are right.
bool reduce_as(int rank, uint16_t port);

}  // namespace lockstep::rendezvous
