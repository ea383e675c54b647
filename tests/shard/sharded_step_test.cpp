// Whoever owns a piece, the step is the one that a single owner of everything would make.
#include "lockstep/shard/sharded_step.h"

#include "lockstep/base/philox.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <thread>

namespace lockstep::shard {
namespace {

using tensor::ParamId;

/// Sizes around a piece of 4,096 elements, so that three owners cut them unevenly.
const std::vector<tensor::ParamSpec>& specs() {
  static const std::vector<tensor::ParamSpec> all = {
      {.name = "embed", .shape = {70, 64}, .block = 0},
      {.name = "layer.norm", .shape = {64}, .block = 1, .decay = false},
      {.name = "layer.up", .shape = {129, 64}, .block = 1},
      {.name = "layer.down", .shape = {64, 3}, .block = 1},
      {.name = "head.norm", .shape = {64}, .block = 2, .decay = false},
      {.name = "head", .shape = {70, 64}, .block = 2},
  };
  return all;
}

/// Uniform in [-1, 1).
at::Tensor values(ParamId id, uint32_t kind) {
  at::Tensor result = at::empty(specs()[static_cast<size_t>(id)].shape, at::kFloat);
  const RandomStream stream{.seed = kind, .purpose = RandomPurpose::Fingerprint, .module = static_cast<uint32_t>(id)};
  auto* data = result.data_ptr<float>();
  for (int64_t i = 0; i < result.numel(); ++i) data[i] = 2 * stream.uniform(static_cast<uint64_t>(i)) - 1;
  return result;
}

constexpr uint32_t kStored = 1, kGrad = 100;
constexpr optim::AdamWStep kStep{.learning_rate = 1e-2, .weight_decay = 0.1, .step = 1, .grad_scale = 0.5};

struct Seen {
  std::map<std::string, at::Tensor> state;  ///< "<name> master" and so on
  std::map<std::string, at::Tensor> weights;
  std::vector<uint64_t> hashes;
  ReduceOutcome outcome;
};

struct Job {
  int ranks = 1;
  bool step = true;
  int broken_rank = -1;  ///< adds a NaN to layer.up
  double huge = 0;       ///< rank 0 adds it to layer.down
};

/// Every contribution comes from one rank: contribution k from rank k % ranks.
Seen run_rank(const Job& job, comm::Communicator& comm) {
  constexpr int kContributions = 6;
  const tensor::ParamLayout layout(specs());
  tensor::ParamStore params(layout, at::kBFloat16, comm.size());
  ThreadTeam team(2);
  ShardedStep sharded(params, comm, team);
  tensor::GradAccumulator gradients(layout, tensor::Reduction::Exact, comm.size());
  const auto num_params = static_cast<size_t>(layout.num_params());
  const std::vector<int> scales(num_params, tensor::kDefaultScaleBits);
  gradients.begin_update(scales, std::vector<int64_t>(num_params, kContributions + 2));
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    sharded.load(id, values(id, kStored));
    for (int k = comm.rank(); k < kContributions; k += comm.size()) {
      gradients.add(id, values(id, kGrad + static_cast<uint32_t>(k)));
    }
  }
  if (job.broken_rank == comm.rank()) {
    gradients.add(2, at::full({129, 64}, std::numeric_limits<double>::quiet_NaN(), at::kFloat));
  }
  if (job.huge != 0 && comm.rank() == 0) gradients.add(3, at::full({64, 3}, job.huge, at::kFloat));

  Seen seen;
  seen.outcome = sharded.reduce(gradients);
  if (job.step) sharded.step(kStep, gradients);
  seen.hashes = sharded.master_hashes();
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    const std::string& name = layout.spec(id).name;
    seen.state[name + " master"] = sharded.gather(id, State::Master);
    seen.state[name + " exp_avg"] = sharded.gather(id, State::ExpAvg);
    seen.state[name + " exp_avg_sq"] = sharded.gather(id, State::ExpAvgSq);
    seen.weights[name] = params.weight(id).clone();
  }
  return seen;
}

std::vector<Seen> run(const Job& job) {
  auto ranks = comm::make_threads(job.ranks, Milliseconds(60'000));
  std::vector<Seen> seen(ranks.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] { seen[rank] = run_rank(job, *ranks[rank]); });
  }
  threads.clear();
  return seen;
}

std::span<float> span_of(at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), static_cast<size_t>(tensor.numel())};
}

/// Contributions in [-1, 1) are multiples of 2^-24 or so: the sum of six is exact in double and in 2^-48.
at::Tensor summed_gradient(ParamId id) {
  at::Tensor sum = at::zeros(specs()[static_cast<size_t>(id)].shape, at::kDouble);
  for (uint32_t k = 0; k < 6; ++k) sum.add_(values(id, kGrad + k).to(at::kDouble));
  return sum.to(at::kFloat);
}

TEST(ShardedStep, GatherReturnsWhatLoadPut) {
  for (const int ranks : {1, 2, 3}) {
    for (const Seen& seen : run({.ranks = ranks, .step = false})) {
      for (ParamId id = 0; id < static_cast<ParamId>(specs().size()); ++id) {
        const std::string& name = specs()[static_cast<size_t>(id)].name;
        EXPECT_TRUE(at::equal(seen.state.at(name + " master"), values(id, kStored))) << name;
        EXPECT_FALSE(seen.state.at(name + " exp_avg").any().item<bool>()) << name;
      }
    }
  }
}

TEST(ShardedStep, IsTheAdamWOfASingleOwner) {
  for (const int ranks : {1, 2, 3}) {
    const std::vector<Seen> all = run({.ranks = ranks});
    for (ParamId id = 0; id < static_cast<ParamId>(specs().size()); ++id) {
      const tensor::ParamSpec& spec = specs()[static_cast<size_t>(id)];
      at::Tensor master = values(id, kStored), grad = summed_gradient(id);
      at::Tensor exp_avg = at::zeros(spec.shape, at::kFloat), exp_avg_sq = at::zeros(spec.shape, at::kFloat);
      optim::AdamWStep step = kStep;
      if (!spec.decay) step.weight_decay = 0;
      optim::adamw_step(span_of(master), span_of(exp_avg), span_of(exp_avg_sq), span_of(grad), step);
      for (const Seen& seen : all) {
        EXPECT_TRUE(at::equal(seen.state.at(spec.name + " master"), master)) << spec.name << " on " << ranks;
        EXPECT_TRUE(at::equal(seen.state.at(spec.name + " exp_avg"), exp_avg)) << spec.name << " on " << ranks;
        EXPECT_TRUE(at::equal(seen.state.at(spec.name + " exp_avg_sq"), exp_avg_sq)) << spec.name << " on " << ranks;
        const at::Tensor& weight = seen.weights.at(spec.name);
        EXPECT_TRUE(at::equal(weight, master.to(weight.scalar_type()))) << spec.name << " on " << ranks;
      }
    }
  }
}

TEST(ShardedStep, HashesAndNormDoNotDependOnTheNumberOfRanks) {
  const Seen one = run({.ranks = 1}).front();
  EXPECT_EQ(one.hashes.size(), 3u) << "one per block";
  EXPECT_TRUE(one.outcome.clean());
  for (const int ranks : {2, 3, 5}) {
    for (const Seen& seen : run({.ranks = ranks})) {
      EXPECT_EQ(seen.hashes, one.hashes) << ranks;
      EXPECT_EQ(seen.outcome.grad_norm, one.outcome.grad_norm) << ranks;
    }
  }
  EXPECT_NE(run({.ranks = 1, .step = false}).front().hashes, one.hashes);
}

TEST(ShardedStep, TheNormIsThatOfTheWholeGradient) {
  double squares = 0;
  for (ParamId id = 0; id < static_cast<ParamId>(specs().size()); ++id) {
    squares += summed_gradient(id).to(at::kDouble).square().sum().item<double>();
  }
  EXPECT_NEAR(run({.ranks = 3}).front().outcome.grad_norm, std::sqrt(squares), 1e-9 * std::sqrt(squares));
}

TEST(ShardedStep, WhatOneRankFoundIsKnownToAll) {
  for (const Seen& seen : run({.ranks = 3, .step = false, .broken_rank = 1})) {
    EXPECT_EQ(seen.outcome.non_finite, std::vector<ParamId>{2});
  }
  for (const Seen& seen : run({.ranks = 3, .step = false, .huge = 1e6})) {
    EXPECT_EQ(seen.outcome.out_of_range, std::vector<ParamId>{3});
    EXPECT_TRUE(seen.outcome.non_finite.empty());
  }
}

}  // namespace
}  // namespace lockstep::shard
