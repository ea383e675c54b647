// The optimizer's pass over pieces in the cache, against the functions it is made of, each run over whole tensors.
#include "lockstep/shard/sharded_step.h"
#include "lockstep/shard/sum_tree.h"

#include "lockstep/base/hash.h"
#include "lockstep/base/philox.h"
#include "lockstep/optim/adafactor.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::shard {
namespace {

using tensor::kPieceElements;
using tensor::ParamId;

/// Odd sizes below, at and above a piece. Of the table few rows get a contribution, the spare gets none in update 2.
const std::vector<tensor::ParamSpec>& odd_specs() {
  static const std::vector<tensor::ParamSpec> all = {
      {.name = "table", .shape = {700, 37}, .block = 0},
      {.name = "norm", .shape = {13}, .block = 1, .decay = false},
      {.name = "square", .shape = {64, 64}, .block = 1},
      {.name = "wide", .shape = {3, 4099}, .block = 1},
      {.name = "bias", .shape = {4097}, .block = 1, .decay = false},
      {.name = "spare", .shape = {1, 8193}, .block = 2},
  };
  return all;
}
constexpr ParamId kTable = 0, kSpare = 5;
constexpr int64_t kPassUpdates = 3;
constexpr int kContributors = 3;
constexpr double kGradScale = 0.75;

std::vector<float> some_floats(int64_t count, ParamId id, uint32_t kind) {
  const RandomStream stream{.seed = kind, .purpose = RandomPurpose::Fingerprint, .module = static_cast<uint32_t>(id)};
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = std::ldexp(2 * stream.uniform(i) - 1, static_cast<int>(i % 7) - 4);
  }
  return values;
}

struct PassCase {
  optim::OptimizerRule rule;
  at::ScalarType dtype = at::kBFloat16;
  tensor::Reduction reduction = tensor::Reduction::Exact;
  int ranks = 1;
};

optim::OptimizerStep step_of(const PassCase& pass, ParamId id, int64_t number) {
  return {.rule = pass.rule, .learning_rate = 0.01, .weight_decay = odd_specs()[static_cast<size_t>(id)].decay ? 0.1 : 0,
          .step = number, .grad_scale = kGradScale};
}

uint32_t kind_of(int64_t update, int contributor) { return static_cast<uint32_t>(100 * update + contributor); }

/// Contribution `contributor` of an update to a parameter: all of it, or the rows [first, first + rows) of the table.
struct Contribution {
  std::vector<float> values;
  int64_t first_row = 0;
};
Contribution contribution(ParamId id, int64_t update, int contributor) {
  const tensor::ParamSpec& spec = odd_specs()[static_cast<size_t>(id)];
  if (id == kSpare && update == 2) return {};
  if (id != kTable) return {some_floats(spec.numel(), id, kind_of(update, contributor))};
  return {some_floats(5 * spec.shape[1], id, kind_of(update, contributor)), 101 * update + 150 * contributor};
}

void contribute(tensor::GradAccumulator& gradients, ParamId id, Contribution from) {
  if (from.values.empty()) return;
  const std::vector<int64_t>& shape = odd_specs()[static_cast<size_t>(id)].shape;
  if (id != kTable) return gradients.add(id, at::from_blob(from.values.data(), shape));
  at::Tensor rows = at::empty({5}, at::kLong);
  for (int64_t i = 0; i < 5; ++i) rows.data_ptr<int64_t>()[i] = from.first_row + i;
  gradients.add_rows(id, rows, at::from_blob(from.values.data(), {5, shape[1]}));
}

/// One parameter, its sums and its states whole.
struct WholeParam {
  ParamId id;
  std::vector<float> master, grad, row, column;
  std::vector<std::vector<float>> states;

  WholeParam(const PassCase& pass, ParamId param) : id(param) {
    const tensor::ParamSpec& spec = odd_specs()[static_cast<size_t>(id)];
    master = some_floats(spec.numel(), id, 1);
    states.resize(optim::num_states(pass.rule, spec.is_matrix()), std::vector<float>(master.size(), 0));
    if (!spec.is_matrix()) return;
    const auto shape = optim::MatrixShape::of(spec.shape);
    row.resize(static_cast<size_t>(shape.num_rows()), 0);
    column.resize(static_cast<size_t>(shape.num_columns()), 0);
  }

  void sum_gradients(int64_t update) {
    std::vector<int64_t> sums(master.size(), 0);
    for (int k = 0; k < kContributors; ++k) {
      const Contribution from = contribution(id, update, k);
      const auto begin = static_cast<size_t>(from.first_row * odd_specs()[static_cast<size_t>(id)].shape.back());
      tensor::exact_add(std::span(sums).subspan(begin, from.values.size()), from.values, tensor::kDefaultScaleBits,
                        0x1p60);
    }
    grad.resize(master.size());
    tensor::exact_to_float(grad, sums, tensor::kDefaultScaleBits);
  }

  void add_squares_to(ExactSum& total, std::span<const float> values) const {
    for (size_t begin = 0; begin < values.size(); begin += kPieceElements) {
      total.add(optim::sum_of_squares(values.subspan(begin, std::min<size_t>(kPieceElements, values.size() - begin))));
    }
  }

  void step(const optim::OptimizerStep& step) {
    if (optim::is_factored(step.rule)) return step_adafactor(step);
    std::vector<std::span<float>> spans(states.begin(), states.end());
    optim::step_elements(step, master, spans, grad);
  }

  void step_adafactor(const optim::OptimizerStep& step) {
    const auto& rule = std::get<optim::AdafactorRule>(step.rule);
    std::vector<float> update(master.size());
    if (row.empty()) {
      optim::average_vector_squares(states[0], grad, rule, step.step, step.grad_scale);
      optim::vector_update(update, grad, states[0], step.grad_scale);
    } else {
      factored_update(update, rule, step);
    }
    ExactSum squares;
    add_squares_to(squares, update);
    optim::apply_update(master, update, step.learning_rate, step.weight_decay,
                        optim::update_divisor(rule, squares.value(), std::ssize(master)));
  }

  void factored_update(std::span<float> update, const optim::AdafactorRule& rule, const optim::OptimizerStep& step) {
    const auto shape = optim::MatrixShape::of(odd_specs()[static_cast<size_t>(id)].shape);
    std::vector<double> columns(column.size()), rows(row.size(), 0);
    add_up({0, (std::ssize(master) + kPieceElements - 1) / kPieceElements}, columns,
           [&](TreeNode node, std::span<double> out) {
             if (node.size() > 1) return false;
             const int64_t begin = node.begin * kPieceElements;
             const auto part = std::span(grad).subspan(static_cast<size_t>(begin));
             std::vector<double> parts(row.size() + 1);
             std::fill(out.begin(), out.end(), 0);
             const int64_t touched = optim::add_squares(part.first(std::min<size_t>(kPieceElements, part.size())), begin,
                                                        shape, step.grad_scale, out, parts);
             for (int64_t i = 0; i < touched; ++i) {
               rows[static_cast<size_t>(begin / shape.cols + i)] += parts[static_cast<size_t>(i)];
             }
             return true;
           });
    optim::average_squares(row, rows, shape.cols, rule, step.step);
    optim::average_squares(column, columns, shape.rows, rule, step.step);
    optim::factored_update(update, grad, 0, shape, optim::row_factors(row, shape), optim::column_factors(column),
                           step.grad_scale);
  }
};

struct PassOutcome {
  std::map<std::string, std::vector<float>> states;
  std::map<std::string, at::Tensor> weights;
  std::vector<std::vector<uint64_t>> hashes;  ///< per update
  std::vector<double> norms;
};

std::vector<uint64_t> hashes_of(const tensor::ParamLayout& layout, const std::vector<WholeParam>& params) {
  std::vector<PieceHash> hashes(static_cast<size_t>(layout.num_blocks()));
  for (const WholeParam& param : params) {
    const tensor::ParamSlot& slot = layout.slot(param.id);
    for (int64_t piece = 0; piece < slot.num_pieces(); ++piece) {
      const auto part = std::span(param.master).subspan(static_cast<size_t>(piece * kPieceElements));
      hashes[static_cast<size_t>(layout.spec(param.id).block)].add(
          static_cast<uint64_t>(2 * (slot.offset / kPieceElements + piece) + slot.segment % 2),
          std::as_bytes(part.first(std::min<size_t>(kPieceElements, part.size()))));
    }
  }
  std::vector<uint64_t> values;
  for (const PieceHash& hash : hashes) values.push_back(hash.value());
  return values;
}

PassOutcome separately(const PassCase& pass) {
  const tensor::ParamLayout layout(odd_specs());
  std::vector<WholeParam> params;
  for (ParamId id = 0; id < layout.num_params(); ++id) params.emplace_back(pass, id);
  PassOutcome outcome;
  for (int64_t update = 1; update <= kPassUpdates; ++update) {
    ExactSum squares;
    for (WholeParam& param : params) {
      param.sum_gradients(update);
      param.add_squares_to(squares, param.grad);
      param.step(step_of(pass, param.id, update));
    }
    outcome.norms.push_back(std::sqrt(squares.value()));
    outcome.hashes.push_back(hashes_of(layout, params));
  }
  for (WholeParam& param : params) {
    const tensor::ParamSpec& spec = layout.spec(param.id);
    const at::ScalarType dtype = spec.is_matrix() || pass.dtype == at::kDouble ? pass.dtype : at::kFloat;
    outcome.weights[spec.name] = at::from_blob(param.master.data(), spec.shape).to(dtype, false, true);
    outcome.states[spec.name + " " + kMasterState] = param.master;
    const auto names = optim::state_names(pass.rule, spec.is_matrix());
    for (size_t i = 0; i < names.size(); ++i) outcome.states[spec.name + " " + names[i]] = param.states[i];
    if (!optim::is_factored(pass.rule) || !spec.is_matrix()) continue;
    outcome.states[spec.name + " " + optim::kRowState] = param.row;
    outcome.states[spec.name + " " + optim::kColumnState] = param.column;
  }
  return outcome;
}

void expect_zero_padding(const tensor::ParamStore& params) {
  const tensor::ParamLayout& layout = params.layout();
  for (int segment = 0; segment < layout.num_segments(); ++segment) {
    int64_t nonzero = 0;
    for (const ParamId id : layout.segment(segment).params) {
      nonzero += params.weight(id).count_nonzero().item<int64_t>();
    }
    EXPECT_EQ(params.segment(segment).count_nonzero().item<int64_t>(), nonzero) << "padding of segment " << segment;
  }
}

PassOutcome in_one_pass(const PassCase& pass, comm::Communicator& comm) {
  const tensor::ParamLayout layout(odd_specs());
  tensor::ParamStore params(layout, pass.dtype, comm.size());
  ThreadTeam team(1 + comm.size() % 2);
  ShardedStep sharded(params, comm, team, pass.rule);
  tensor::GradAccumulator gradients(layout, pass.reduction, comm.size());
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    std::vector<float> stored = some_floats(layout.spec(id).numel(), id, 1);
    sharded.load(id, at::from_blob(stored.data(), layout.spec(id).shape));
  }
  PassOutcome outcome;
  const auto num_params = static_cast<size_t>(layout.num_params());
  for (int64_t update = 1; update <= kPassUpdates; ++update) {
    gradients.begin_update(std::vector<int>(num_params, tensor::kDefaultScaleBits),
                           std::vector<int64_t>(num_params, 4));
    for (ParamId id = 0; id < layout.num_params(); ++id) {
      for (int k = comm.rank(); k < kContributors; k += comm.size()) {
        contribute(gradients, id, contribution(id, update, k));
      }
    }
    outcome.norms.push_back(sharded.reduce(gradients).grad_norm);
    optim::OptimizerStep step = step_of(pass, 0, update);
    sharded.step(step, gradients);
    outcome.hashes.push_back(sharded.master_hashes());
  }
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    const std::string& name = layout.spec(id).name;
    outcome.weights[name] = params.weight(id).clone();
    for (const std::string& state : sharded.state_names(id)) {
      const at::Tensor whole = sharded.gather(id, state);
      outcome.states[name + " " + state] = {whole.data_ptr<float>(), whole.data_ptr<float>() + whole.numel()};
    }
  }
  expect_zero_padding(params);
  return outcome;
}

std::vector<PassOutcome> in_one_pass(const PassCase& pass) {
  auto ranks = comm::make_threads(pass.ranks, Milliseconds(60'000));
  std::vector<PassOutcome> outcomes(ranks.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back([&, rank] { outcomes[rank] = in_one_pass(pass, *ranks[rank]); });
  }
  threads.clear();
  return outcomes;
}

void expect_equal(const PassOutcome& got, const PassOutcome& want, const std::string& where) {
  EXPECT_EQ(got.norms, want.norms) << where;
  EXPECT_EQ(got.hashes, want.hashes) << where;
  ASSERT_EQ(got.states.size(), want.states.size()) << where;
  for (const auto& [name, values] : want.states) EXPECT_EQ(got.states.at(name), values) << name << " " << where;
  for (const auto& [name, values] : want.weights) {
    EXPECT_EQ(got.weights.at(name).scalar_type(), values.scalar_type()) << name << " " << where;
    EXPECT_TRUE(at::equal(got.weights.at(name), values)) << name << " " << where;
  }
}

std::vector<optim::OptimizerRule> every_rule() {
  return {optim::AdamWRule{},
          optim::SgdRule{},
          optim::SgdRule{.momentum = 0.9},
          optim::SgdRule{.momentum = 0.9, .nesterov = true},
          optim::AdagradRule{},
          optim::RmsPropRule{},
          optim::RmsPropRule{.centered = true},
          optim::RmsPropRule{.momentum = 0.9, .centered = true},
          optim::LionRule{},
          optim::AdafactorRule{}};
}

TEST(CachedPass, IsTheSeparateFunctionsForEveryOptimizerDtypeAndNumberOfRanks) {
  for (const optim::OptimizerRule& rule : every_rule()) {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
      const PassOutcome want = separately({.rule = rule, .dtype = dtype});
      for (const int ranks : {1, 2, 3, 5}) {
        for (const PassOutcome& got : in_one_pass({.rule = rule, .dtype = dtype, .ranks = ranks})) {
          expect_equal(got, want,
                       optim::optimizer_name(rule) + " " + c10::toString(dtype) + " on " + std::to_string(ranks));
        }
      }
    }
  }
}

TEST(CachedPass, RoundsIntoOtherDtypesToo) {
  for (const at::ScalarType dtype : {at::kHalf, at::kDouble}) {
    const PassOutcome want = separately({.rule = optim::AdamWRule{}, .dtype = dtype});
    expect_equal(in_one_pass({.rule = optim::AdamWRule{}, .dtype = dtype, .ranks = 2}).back(), want,
                 c10::toString(dtype));
  }
}

/// Contributions to an element are added one after the other here, so float sums have the bits of this plain loop.
TEST(CachedPass, ReadsFloat32SumsWhereTheyLie) {
  const PassCase pass{.rule = optim::SgdRule{}, .reduction = tensor::Reduction::Float32};
  const PassOutcome got = in_one_pass(pass).front();
  for (ParamId id = 0; id < static_cast<ParamId>(odd_specs().size()); ++id) {
    WholeParam whole(pass, id);
    for (int64_t update = 1; update <= kPassUpdates; ++update) {
      whole.grad.assign(whole.master.size(), 0);
      for (int k = 0; k < kContributors; ++k) {
        const Contribution from = contribution(id, update, k);
        const auto begin = static_cast<size_t>(from.first_row * odd_specs()[static_cast<size_t>(id)].shape.back());
        for (size_t i = 0; i < from.values.size(); ++i) whole.grad[begin + i] += from.values[i];
      }
      whole.step(step_of(pass, id, update));
    }
    const std::string& name = odd_specs()[static_cast<size_t>(id)].name;
    EXPECT_EQ(got.states.at(name + " " + kMasterState), whole.master) << name;
  }
}

TEST(CachedPass, HashesFollowTheMastersHoweverTheyChange) {
  const tensor::ParamLayout layout(odd_specs());
  tensor::ParamStore params(layout, at::kBFloat16, 1);
  ThreadTeam team(2);
  const auto comm = comm::make_self();
  ShardedStep sharded(params, *comm, team);
  const PassCase pass{.rule = optim::AdamWRule{}};
  std::vector<WholeParam> whole;
  const auto expect_hashes = [&](const char* when) { EXPECT_EQ(sharded.master_hashes(), hashes_of(layout, whole)) << when; };
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    whole.emplace_back(pass, id);
    sharded.load(id, at::from_blob(whole.back().master.data(), layout.spec(id).shape));
  }
  expect_hashes("loaded");
  for (float& value : whole[kTable].master) value += 1;
  sharded.load(kTable, at::from_blob(whole[kTable].master.data(), layout.spec(kTable).shape));
  expect_hashes("one loaded again");
  for (float& value : whole[kSpare].master) value *= 3;
  sharded.load_state([&](const OwnedState& what, std::span<float> out) {
    if (what.state != kMasterState) return;
    std::copy_n(whole[static_cast<size_t>(what.param)].master.begin() + what.begin, out.size(), out.begin());
  });
  expect_hashes("from a checkpoint");
  expect_hashes("asked again");
}

size_t num_resident_pages(std::span<const float> values) {
  constexpr size_t kPageBytes = 4096;
  std::vector<unsigned char> resident((values.size_bytes() + kPageBytes - 1) / kPageBytes);
  EXPECT_EQ(mincore(const_cast<float*>(values.data()), values.size_bytes(), resident.data()), 0);
  return static_cast<size_t>(std::count_if(resident.begin(), resident.end(), [](unsigned char page) { return (page & 1U) != 0; }));
}

TEST(CachedPass, RowsWithoutAGradientTakeNoPagesOfStates) {
  const tensor::ParamLayout layout({{.name = "table", .shape = {8192, 512}, .block = 0, .by_rows = true}});
  tensor::ParamStore params(layout, at::kFloat, 1);
  ThreadTeam team(2);
  const auto comm = comm::make_self();
  ShardedStep sharded(params, *comm, team);
  tensor::GradAccumulator gradients(layout, tensor::Reduction::Exact, 1);
  sharded.load(0, at::full({8192, 512}, 2.0F));
  const std::vector<int> scale{tensor::kDefaultScaleBits};
  const std::vector<int64_t> contributions{1};
  gradients.begin_update(scale, contributions);
  gradients.add_rows(0, at::full({1}, 4000, at::kLong), at::full({1, 512}, 0.5F));
  sharded.reduce(gradients);
  sharded.step(optim::AdamWStep{.learning_rate = 0.01, .weight_decay = 0.1, .step = 1}, gradients);

  constexpr size_t kPagesOfPiece = kPieceElements * sizeof(float) / 4096;
  for (const OwnedState& state : sharded.owned_states()) {
    if (state.state == kMasterState) {
      EXPECT_FLOAT_EQ(state.values.front(), 2.0F * (1.0F - 0.01F * 0.1F)) << "decay reaches rows without a gradient";
    } else {
      EXPECT_EQ(num_resident_pages(state.values), kPagesOfPiece) << state.state;
      EXPECT_NE(state.values[4000 * 512], 0) << state.state;
    }
  }
}

TEST(CachedPass, Float32WeightsAreTheMastersThemselves) {
  const tensor::ParamLayout layout(odd_specs());
  const auto comm = comm::make_self();
  ThreadTeam team(1);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    tensor::ParamStore params(layout, dtype, 1);
    const ShardedStep sharded(params, *comm, team);
    for (const OwnedState& state : sharded.owned_states()) {
      const at::Tensor& weight = params.weight(state.param);
      const bool same = static_cast<const void*>(state.values.data()) == weight.const_data_ptr();
      EXPECT_EQ(same, state.state == kMasterState && weight.scalar_type() == at::kFloat) << layout.spec(state.param).name;
    }
  }
}

}  // namespace
}  // namespace lockstep::shard
