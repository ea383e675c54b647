#pragma once

#include "lockstep/comm/communicator.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <functional>

/// What every backend must do; run by each rank. Shapes cross the size of one exchange (1 Mi elements).
namespace lockstep::comm::claims {

inline void int64_sums_are_exact(Communicator& comm) {
  const int64_t n = (int64_t{1} << 20) + 12345;
  at::Tensor values = at::arange(n * comm.size(), at::kLong).mul(int64_t{1} << 36).add(comm.rank());
  at::Tensor shard = at::empty({n}, at::kLong);
  comm.reduce_scatter_sum(values, shard, "test");
  const int64_t ranks_sum = int64_t{comm.size()} * (comm.size() - 1) / 2;
  const at::Tensor want =
      at::arange(n, at::kLong).add(n * comm.rank()).mul((int64_t{1} << 36) * comm.size()).add(ranks_sum);
  EXPECT_TRUE(shard.equal(want)) << "rank " << comm.rank() << " of " << comm.size();

  at::Tensor all = at::full({5}, comm.rank() + 1, at::kLong);
  comm.all_reduce_sum(all, "test");
  EXPECT_TRUE(all.equal(at::full({5}, ranks_sum + comm.size(), at::kLong)));
  at::Tensor largest = at::full({3}, comm.rank(), at::kLong);
  comm.all_reduce_max(largest, "test");
  EXPECT_TRUE(largest.equal(at::full({3}, comm.size() - 1, at::kLong)));
}

inline void gather_and_broadcast_move_every_byte(Communicator& comm) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat, at::kByte}) {
    const int64_t n = 4099;
    at::Tensor values = at::full({n * comm.size()}, 77, dtype);
    at::Tensor mine = values.narrow(0, n * comm.rank(), n);
    mine.fill_(comm.rank() + 1);
    comm.all_gather(mine, values, "test");
    for (int peer = 0; peer < comm.size(); ++peer) {
      EXPECT_TRUE(values.narrow(0, n * peer, n).equal(at::full({n}, peer + 1, dtype))) << "from rank " << peer;
    }
    at::Tensor message = at::full({17}, comm.rank(), dtype);
    comm.broadcast(message, comm.size() - 1, "test");
    EXPECT_TRUE(message.equal(at::full({17}, comm.size() - 1, dtype)));
  }
}

inline void texts_arrive_in_rank_order(Communicator& comm) {
  const std::string mine(static_cast<size_t>(comm.rank() * 3), 'x');
  const std::vector<std::string> all = comm.all_gather_text(mine + std::to_string(comm.rank()), "test");
  ASSERT_EQ(all.size(), static_cast<size_t>(comm.size()));
  for (int peer = 0; peer < comm.size(); ++peer) {
    EXPECT_EQ(all[static_cast<size_t>(peer)], std::string(static_cast<size_t>(peer * 3), 'x') + std::to_string(peer));
  }
  comm.barrier("test");
}

}  // namespace lockstep::comm::claims
