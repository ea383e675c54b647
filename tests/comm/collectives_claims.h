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

/// Sizes from nothing to more than what travels at a time, none of them round.
inline void any_size_will_do(Communicator& comm) {
  for (const int64_t n : {0, 1, 7, 65'537, 200'003}) {
    at::Tensor values = at::arange(n * comm.size(), at::kLong).add(comm.rank());
    at::Tensor mine = values.narrow(0, n * comm.rank(), n);
    comm.reduce_scatter_sum(values, mine, "test");
    const int64_t ranks_sum = int64_t{comm.size()} * (comm.size() - 1) / 2;
    EXPECT_TRUE(mine.equal(at::arange(n, at::kLong).add(n * comm.rank()).mul(comm.size()).add(ranks_sum))) << n;

    at::Tensor sum = at::arange(n, at::kLong).mul(comm.rank() + 1);
    comm.all_reduce_sum(sum, "test");
    EXPECT_TRUE(sum.equal(at::arange(n, at::kLong).mul(ranks_sum + comm.size()))) << n;

    at::Tensor shard = at::full({n}, comm.rank(), at::kBFloat16), all = at::full({n * comm.size()}, -1, at::kBFloat16);
    comm.all_gather(shard, all, "test");
    for (int peer = 0; peer < comm.size(); ++peer) {
      EXPECT_TRUE(all.narrow(0, n * peer, n).equal(at::full({n}, peer, at::kBFloat16))) << n << " of rank " << peer;
    }
    at::Tensor message = at::full({n}, comm.rank() + 1, at::kDouble);
    comm.broadcast(message, 0, "test");
    EXPECT_TRUE(message.equal(at::full({n}, 1, at::kDouble))) << n;
  }
}

/// 1 + 2^-24 is 1 again, so every other order gives another sum.
inline void floats_are_added_in_rank_order(Communicator& comm) {
  const int64_t n = 1000;
  const float small = 0x1p-24F;
  at::Tensor values = at::full({n * comm.size()}, comm.rank() == 0 ? 1.0F : small, at::kFloat);
  at::Tensor shard = at::empty({n}, at::kFloat);
  comm.reduce_scatter_sum(values, shard, "test");
  EXPECT_TRUE(shard.equal(at::full({n}, 1.0F, at::kFloat))) << "rank " << comm.rank() << ": " << shard[0].item<float>();
}

inline void all(Communicator& comm) {
  int64_sums_are_exact(comm);
  any_size_will_do(comm);
  floats_are_added_in_rank_order(comm);
  gather_and_broadcast_move_every_byte(comm);
  texts_arrive_in_rank_order(comm);
}

}  // namespace lockstep::comm::claims
