// Every optimizer, whoever owns the pieces: the same bits on 1, 2, 3 and 5 ranks, through a checkpoint too.
#include "lockstep/shard/sharded_step.h"

#include "lockstep/base/philox.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::shard {
namespace {

using tensor::ParamId;

/// Rows that straddle pieces, columns wider than a piece, a tensor of three dimensions, vectors of several pieces.
const std::vector<tensor::ParamSpec>& mixed_specs() {
  static const std::vector<tensor::ParamSpec> all = {
      {.name = "embed", .shape = {211, 100}, .block = 0},
      {.name = "layer.norm", .shape = {64}, .block = 1, .decay = false},
      {.name = "layer.up", .shape = {129, 64}, .block = 1},
      {.name = "layer.wide", .shape = {3, 9001}, .block = 1},
      {.name = "layer.cube", .shape = {3, 50, 70}, .block = 1},
      {.name = "head.bias", .shape = {9000}, .block = 2, .decay = false},
      {.name = "head", .shape = {70, 64}, .block = 2},
  };
  return all;
}

constexpr int kUpdates = 4;

/// Uniform in [-1, 1) times a power of two that differs from row to row.
at::Tensor random_tensor(ParamId id, uint32_t kind) {
  const tensor::ParamSpec& spec = mixed_specs()[static_cast<size_t>(id)];
  at::Tensor result = at::empty(spec.shape, at::kFloat);
  const RandomStream stream{.seed = kind, .purpose = RandomPurpose::Fingerprint, .module = static_cast<uint32_t>(id)};
  auto* data = result.data_ptr<float>();
  for (int64_t i = 0; i < result.numel(); ++i) {
    const int exponent = static_cast<int>(i / spec.shape.back() % 5) - static_cast<int>(i % 3);
    data[i] = std::ldexp(2 * stream.uniform(static_cast<uint64_t>(i)) - 1, exponent);
  }
  return result;
}

optim::OptimizerStep numbered(const optim::OptimizerRule& rule, int64_t number) {
  return {.rule = rule, .learning_rate = 0.01 / static_cast<double>(number), .weight_decay = 0.1, .step = number,
          .grad_scale = 0.5};
}

/// One rank's model, from the first update or from a checkpoint before `first_update`.
struct Rank {
  tensor::ParamLayout layout{mixed_specs()};
  tensor::ParamStore params;
  ThreadTeam team;
  comm::Communicator& axis;
  ShardedStep sharded;
  tensor::GradAccumulator gradients;

  Rank(const optim::OptimizerRule& rule, comm::Communicator& communicator, int threads)
      : params(layout, at::kBFloat16, communicator.size()),
        team(threads),
        axis(communicator),
        sharded(params, communicator, team, rule),
        gradients(layout, tensor::Reduction::Exact, communicator.size()) {}

  void load() {
    for (ParamId id = 0; id < layout.num_params(); ++id) sharded.load(id, random_tensor(id, 1));
  }

  void update(const optim::OptimizerRule& rule, int64_t number) {
    const auto num_params = static_cast<size_t>(layout.num_params());
    gradients.begin_update(std::vector<int>(num_params, tensor::kDefaultScaleBits),
                           std::vector<int64_t>(num_params, 3));
    for (ParamId id = 0; id < layout.num_params(); ++id) {
      for (int k = axis.rank(); k < 3; k += axis.size()) {
        gradients.add(id, random_tensor(id, static_cast<uint32_t>(10 * number + k)));
      }
    }
    const ReduceOutcome outcome = sharded.reduce(gradients);
    EXPECT_TRUE(outcome.clean());
    sharded.step(numbered(rule, number), gradients);
  }
};

struct Outcome {
  std::map<std::string, at::Tensor> state;    ///< "<parameter> <state>"
  std::map<std::string, at::Tensor> weights;
  std::vector<uint64_t> hashes;
};

Outcome outcome_of(Rank& rank) {
  Outcome outcome;
  for (ParamId id = 0; id < rank.layout.num_params(); ++id) {
    const std::string& name = rank.layout.spec(id).name;
    for (const std::string& state : rank.sharded.state_names(id)) {
      outcome.state[name + " " + state] = rank.sharded.gather(id, state);
    }
    outcome.weights[name] = rank.params.weight(id).clone();
  }
  outcome.hashes = rank.sharded.master_hashes();
  return outcome;
}

template <class Work>
void on_ranks(int num_ranks, Work work) {
  auto ranks = comm::make_threads(num_ranks, Milliseconds(60'000));
  std::vector<std::jthread> threads;
  for (auto& rank : ranks) threads.emplace_back([&work, &rank] { work(*rank); });
}

std::vector<Outcome> train(const optim::OptimizerRule& rule, int num_ranks) {
  std::vector<Outcome> outcomes(static_cast<size_t>(num_ranks));
  on_ranks(num_ranks, [&](comm::Communicator& comm) {
    Rank rank(rule, comm, 1 + num_ranks % 2);
    rank.load();
    for (int64_t number = 1; number <= kUpdates; ++number) rank.update(rule, number);
    outcomes[static_cast<size_t>(comm.rank())] = outcome_of(rank);
  });
  return outcomes;
}

void expect_same(const Outcome& got, const Outcome& want, const std::string& where) {
  ASSERT_EQ(got.state.size(), want.state.size()) << where;
  for (const auto& [name, values] : want.state) {
    EXPECT_TRUE(at::equal(got.state.at(name), values)) << name << " " << where;
  }
  for (const auto& [name, values] : want.weights) {
    EXPECT_TRUE(at::equal(got.weights.at(name), values)) << name << " " << where;
  }
  EXPECT_EQ(got.hashes, want.hashes) << where;
}

const std::vector<optim::OptimizerRule>& all_rules() {
  static const std::vector<optim::OptimizerRule> rules = {
      optim::AdamWRule{},
      optim::SgdRule{},
      optim::SgdRule{.momentum = 0.9, .nesterov = true},
      optim::AdagradRule{},
      optim::RmsPropRule{.momentum = 0.9, .centered = true},
      optim::LionRule{},
      optim::AdafactorRule{},
  };
  return rules;
}

TEST(Optimizers, GiveTheSameBitsOnAnyNumberOfRanks) {
  for (const optim::OptimizerRule& rule : all_rules()) {
    const Outcome one = train(rule, 1).front();
    for (const auto& [name, values] : one.state) EXPECT_TRUE(values.any().item<bool>()) << name;
    for (const int ranks : {2, 3, 5}) {
      for (const Outcome& other : train(rule, ranks)) {
        expect_same(other, one, optim::optimizer_name(rule) + " on " + std::to_string(ranks));
      }
    }
  }
}

TEST(Optimizers, ContinueFromTheirStateInAnotherLayout) {
  for (const optim::OptimizerRule& rule : all_rules()) {
    const Outcome whole = train(rule, 1).front();
    std::mutex mutex;  // guards kept and num_kept
    std::map<std::string, std::vector<float>> kept;
    std::map<std::string, int64_t> num_kept;
    on_ranks(3, [&](comm::Communicator& comm) {
      Rank rank(rule, comm, 1);
      rank.load();
      for (int64_t number = 1; number <= 2; ++number) rank.update(rule, number);
      const std::lock_guard lock(mutex);
      for (const OwnedState& owned : rank.sharded.owned_states()) {
        const std::string name = rank.layout.spec(owned.param).name + " " + owned.state;
        kept[name].resize(static_cast<size_t>(owned.numel));
        std::copy(owned.values.begin(), owned.values.end(), kept[name].begin() + owned.begin);
        num_kept[name] += owned.end - owned.begin;
      }
    });
    ASSERT_EQ(num_kept.size(), whole.state.size());
    for (const auto& [name, values] : whole.state) EXPECT_EQ(num_kept[name], values.numel()) << "each once: " << name;

    on_ranks(2, [&](comm::Communicator& comm) {
      Rank rank(rule, comm, 2);
      rank.sharded.load_state([&](const OwnedState& what, std::span<float> out) {
        const std::vector<float>& values = kept.at(rank.layout.spec(what.param).name + " " + what.state);
        std::copy_n(values.begin() + what.begin, out.size(), out.begin());
      });
      for (int64_t number = 3; number <= kUpdates; ++number) rank.update(rule, number);
      expect_same(outcome_of(rank), whole, optim::optimizer_name(rule) + " resumed");
    });
  }
}

/// Algorithm 4 of the paper with the update clipping of its section 6, per tensor and in double.
struct PlainAdafactor {
  std::vector<int64_t> shape;
  std::vector<double> master, row, column, squares;

  void step(const std::vector<double>& grad, const optim::OptimizerStep& step, bool decay) {
    const double beta2 = 1 - std::pow(static_cast<double>(step.step), -0.8);
    const auto numel = grad.size();
    std::vector<double> update(numel);
    if (shape.size() == 1) {
      squares.resize(numel, 0);
      for (size_t i = 0; i < numel; ++i) {
        squares[i] = beta2 * squares[i] + (1 - beta2) * (grad[i] * grad[i] + 1e-30);
        update[i] = grad[i] / std::sqrt(squares[i]);
      }
    } else {
      const auto cols = static_cast<size_t>(shape.back()), rows = static_cast<size_t>(shape[shape.size() - 2]);
      row.resize(numel / cols, 0);
      column.resize(numel / rows, 0);
      for (double& value : row) value *= beta2;
      for (double& value : column) value *= beta2;
      for (size_t i = 0; i < numel; ++i) {
        const double square = (1 - beta2) * (grad[i] * grad[i] + 1e-30);
        row[i / cols] += square / static_cast<double>(cols);
        column[i / (rows * cols) * cols + i % cols] += square / static_cast<double>(rows);
      }
      for (size_t i = 0; i < numel; ++i) {
        const size_t matrix = i / (rows * cols);
        double mean = 0;
        if (i % (rows * cols) == 0) {
          for (size_t r = 0; r < rows; ++r) mean += row[matrix * rows + r] / static_cast<double>(rows);
          means.resize(matrix + 1);
          means[matrix] = mean;
        }
        update[i] = grad[i] / std::sqrt(row[i / cols] * column[matrix * cols + i % cols] / means[matrix]);
      }
    }
    double sum = 0;
    for (const double value : update) sum += value * value;
    const double divisor = std::max(1.0, std::sqrt(sum / static_cast<double>(numel)));
    for (size_t i = 0; i < numel; ++i) {
      master[i] -= step.learning_rate * ((decay ? step.weight_decay : 0) * master[i] + update[i] / divisor);
    }
  }

  std::vector<double> means;
};

std::vector<double> doubles_of(const at::Tensor& values) {
  const at::Tensor flat = values.reshape({-1}).to(at::kDouble);
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}

TEST(Adafactor, FollowsThePaper) {
  const optim::OptimizerRule rule = optim::AdafactorRule{};
  const Outcome got = train(rule, 3).front();
  for (ParamId id = 0; id < static_cast<ParamId>(mixed_specs().size()); ++id) {
    const tensor::ParamSpec& spec = mixed_specs()[static_cast<size_t>(id)];
    PlainAdafactor plain{spec.shape, doubles_of(random_tensor(id, 1)), {}, {}, {}, {}};
    for (int64_t number = 1; number <= kUpdates; ++number) {
      at::Tensor sum = at::zeros(spec.shape, at::kDouble);
      for (int k = 0; k < 3; ++k) sum.add_(random_tensor(id, static_cast<uint32_t>(10 * number + k)).to(at::kDouble));
      plain.step(doubles_of(sum.mul_(0.5)), numbered(rule, number), spec.decay);
    }
    // Per update: a dozen roundings of the direction (at most the learning rate times a few), one of the weight (< 16).
    const std::vector<double> master = doubles_of(got.state.at(spec.name + " master"));
    for (size_t i = 0; i < master.size(); ++i) {
      ASSERT_NEAR(master[i], plain.master[i], kUpdates * 0x1p-24 * (16 + 12 * 0.01 * 100)) << spec.name << " " << i;
    }
    const bool is_matrix = spec.is_matrix();
    const auto expect_state = [&](const char* name, const std::vector<double>& want) {
      const std::vector<double> state = doubles_of(got.state.at(spec.name + " " + name));
      ASSERT_EQ(state.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(state[i], want[i], kUpdates * 6 * 0x1p-24 * want[i]) << name;
    };
    if (is_matrix) expect_state(optim::kRowState, plain.row);
    if (is_matrix) expect_state(optim::kColumnState, plain.column);
    if (!is_matrix) expect_state("exp_avg_sq", plain.squares);
  }
}

TEST(Adafactor, KeepsLittle) {
  const tensor::ParamLayout layout(std::vector<tensor::ParamSpec>{{.name = "up", .shape = {1024, 512}, .block = 0}});
  tensor::ParamStore params(layout, at::kBFloat16, 1);
  ThreadTeam team(1);
  const auto comm = comm::make_self();
  ShardedStep adamw(params, *comm, team), adafactor(params, *comm, team, optim::AdafactorRule{});
  EXPECT_EQ(adamw.state_bytes(), 3 * 4 * 1024 * 512);
  EXPECT_EQ(adafactor.state_bytes(), 4 * (1024 * 512 + 1024 + 512));
  EXPECT_EQ(adafactor.gather(0, optim::kRowState).sizes(), at::IntArrayRef({1024}));
  EXPECT_EQ(adafactor.gather(0, optim::kColumnState).sizes(), at::IntArrayRef({512}));
}

}  // namespace
}  // namespace lockstep::shard
