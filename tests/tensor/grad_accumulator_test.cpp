#include "lockstep/tensor/grad_accumulator.h"

#include "lockstep/base/error.h"
#include "support/collecting_sink.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <thread>

namespace lockstep::tensor {
namespace {

/// The matrix spans several stripes and begins inside one; rows of 300 cross stripes' edges.
ParamLayout layout_of_test() {
  return ParamLayout({{.name = "first", .shape = {5, 7}, .block = 0},
                      {.name = "table", .shape = {1000, 300}, .block = 0},
                      {.name = "norm", .shape = {300}, .block = 0},
                      {.name = "unused", .shape = {64, 64}, .block = 1}});
}
constexpr ParamId kFirst = 0, kTable = 1, kNorm = 2, kUnused = 3;

struct Begun {
  Begun(const ParamLayout& layout, Reduction reduction, int num_shards, int64_t num_contributions, int scale_bits = 48)
      : grads(layout, reduction, num_shards) {
    const auto count = static_cast<size_t>(layout.num_params());
    grads.begin_update(std::vector<int>(count, scale_bits), std::vector<int64_t>(count, num_contributions));
  }
  GradAccumulator grads;
};

/// The gradient of one parameter as floats.
at::Tensor gradient(GradAccumulator& grads, const ParamLayout& layout, ParamId id) {
  const ParamSlot& slot = layout.slot(id);
  at::Tensor floats = at::full({slot.numel}, 9, at::TensorOptions().dtype(at::kFloat));
  for (int64_t begin = 0; begin < slot.numel; begin += kPieceElements) {
    const std::span<float> room(floats.data_ptr<float>() + begin,
                                static_cast<size_t>(std::min(kPieceElements, slot.numel - begin)));
    const auto values = grads.gradient(slot.segment, (slot.offset + begin) / kPieceElements, room);
    if (values.data() != room.data()) std::copy(values.begin(), values.end(), room.begin());
  }
  return floats.view(layout.spec(id).shape);
}

bool equal_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.eq(b).all().item<bool>();
}

TEST(GradAccumulator, SumsEveryDtypeAndLeavesTheRestZero) {
  const ParamLayout layout = layout_of_test();
  for (const Reduction reduction : {Reduction::Exact, Reduction::Float32}) {
    Begun begun(layout, reduction, 3, 8);
    const at::Tensor grad = at::randn({1000, 300}).to(at::kBFloat16).clamp(-4, 4).to(at::kHalf);
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kDouble}) {
      begun.grads.add(kTable, grad.to(dtype));
    }
    begun.grads.add(kTable, at::ones({1000, 300}, at::TensorOptions().dtype(at::kBFloat16)));
    const at::Tensor want = (grad.to(at::kDouble) * 3 + 1).to(at::kFloat);
    EXPECT_LE((gradient(begun.grads, layout, kTable) - want).abs().max().item<float>(),
              reduction == Reduction::Exact ? 0.0F : 4 * 13 * std::numeric_limits<float>::epsilon());
    EXPECT_EQ(gradient(begun.grads, layout, kFirst).abs().max().item<float>(), 0);
    EXPECT_EQ(gradient(begun.grads, layout, kUnused).abs().max().item<float>(), 0);
    const at::Tensor& segment = begun.grads.segment(0);
    EXPECT_EQ(segment.numel(), layout.padded_elements(0, 3));
    EXPECT_LE(segment.count_nonzero().item<int64_t>(), 300'000) << "padding is zero";
  }
}

TEST(GradAccumulator, EqualsADoubleSumRoundedOnce) {
  const ParamLayout layout = layout_of_test();
  Begun begun(layout, Reduction::Exact, 1, 6);
  testing::CollectingSink reference(layout);
  for (int contribution = 0; contribution < 6; ++contribution) {
    // Multiples of 2^-20 below 16: sums in double are exact too.
    const at::Tensor grad = (at::randn({300}).clamp(-8, 8) * 0x1p20).round() * 0x1p-20;
    begun.grads.add(kNorm, grad);
    reference.add(kNorm, grad);
  }
  EXPECT_TRUE(equal_bits(gradient(begun.grads, layout, kNorm), reference.sum(kNorm).to(at::kFloat)));
}

TEST(GradAccumulator, AddsRowsWhereTheyBelong) {
  const ParamLayout layout = layout_of_test();
  for (const Reduction reduction : {Reduction::Exact, Reduction::Float32}) {
    Begun begun(layout, reduction, 2, 100);
    testing::CollectingSink reference(layout);
    const at::Tensor rows = at::tensor(std::vector<int64_t>{0, 999, 5, 5, 218, 436, 217, 5});  // 218 crosses an edge
    const at::Tensor grad = (at::randn({8, 300}).clamp(-8, 8) * 0x1p12).round() * 0x1p-12;
    begun.grads.add_rows(kTable, rows, grad);
    reference.add_rows(kTable, rows, grad);
    EXPECT_TRUE(equal_bits(gradient(begun.grads, layout, kTable), reference.sum(kTable).to(at::kFloat)));
  }
}

TEST(GradAccumulator, GivesTheSameBitsForAnyThreadsAndOrder) {
  const ParamLayout layout = layout_of_test();
  constexpr size_t kGrains = 12;
  std::vector<at::Tensor> grads, row_grads, rows;
  for (size_t grain = 0; grain < kGrains; ++grain) {
    grads.push_back(at::randn({1000, 300}).to(grain % 2 == 0 ? at::kBFloat16 : at::kFloat));
    row_grads.push_back(at::randn({50, 300}));
    rows.push_back((at::randn({50}).abs() * 100).clamp(0, 999).to(at::kLong));
  }
  const auto sum_with = [&](size_t num_threads) {
    Begun begun(layout, Reduction::Exact, 1, 700);
    std::vector<std::jthread> threads;
    for (size_t thread = 0; thread < num_threads; ++thread) {
      threads.emplace_back([&, thread] {
        for (size_t grain = num_threads - 1 - thread; grain < kGrains; grain += num_threads) {
          begun.grads.add_rows(kTable, rows[grain], row_grads[grain]);
          begun.grads.add(kTable, grads[grain]);
          begun.grads.add(kNorm, row_grads[grain][0]);
        }
      });
    }
    threads.clear();
    EXPECT_FALSE(begun.grads.flags(kTable).any());
    return std::pair(begun.grads.segment(0).clone(), begun.grads.segment(1).clone());
  };
  const auto want = sum_with(1);
  for (const size_t num_threads : {2, 3, 5}) {
    const auto got = sum_with(num_threads);
    EXPECT_TRUE(equal_bits(got.first, want.first)) << num_threads << " threads";
    EXPECT_TRUE(equal_bits(got.second, want.second)) << num_threads << " threads";
  }
}

TEST(GradAccumulator, FlagsTheParameterThatWentWrong) {
  const ParamLayout layout = layout_of_test();
  Begun begun(layout, Reduction::Exact, 1, 1);
  at::Tensor grad = at::ones({1000, 300});
  grad[777][299] = std::numeric_limits<float>::quiet_NaN();
  begun.grads.add(kTable, grad);
  begun.grads.add(kNorm, at::full({300}, 0x1p14));  // 2^14 * 2^48 = 2^62
  EXPECT_TRUE(begun.grads.flags(kTable).non_finite);
  EXPECT_FALSE(begun.grads.flags(kTable).range);
  EXPECT_TRUE(begun.grads.flags(kNorm).range);
  EXPECT_FALSE(begun.grads.flags(kNorm).non_finite);
  EXPECT_FALSE(begun.grads.flags(kFirst).any());

  // The retry: 16 bits less for the parameter named.
  begun.grads.begin_update(std::vector<int>{48, 48, 32, 48}, std::vector<int64_t>{1, 1, 1, 1});
  EXPECT_FALSE(begun.grads.flags(kTable).any());
  begun.grads.add(kNorm, at::full({300}, 0x1p14));
  EXPECT_FALSE(begun.grads.flags(kNorm).any());
  EXPECT_TRUE(equal_bits(gradient(begun.grads, layout, kNorm), at::full({300}, 0x1p14)));
  EXPECT_EQ(gradient(begun.grads, layout, kTable).abs().max().item<float>(), 0) << "the old sum is gone";
}

TEST(GradAccumulator, FlagsRowsAndHalvesToo) {
  const ParamLayout layout = layout_of_test();
  Begun begun(layout, Reduction::Exact, 1, 1);
  begun.grads.add_rows(kTable, at::tensor(std::vector<int64_t>{3}), at::full({1, 300}, 1e30));
  EXPECT_TRUE(begun.grads.flags(kTable).range);
  begun.grads.add(kFirst, at::full({5, 7}, std::numeric_limits<double>::infinity()).to(at::kHalf));
  EXPECT_TRUE(begun.grads.flags(kFirst).non_finite);
}

TEST(GradAccumulator, FlagsNonFiniteFloatSums) {
  const ParamLayout layout = layout_of_test();
  Begun begun(layout, Reduction::Float32, 1, 1);
  begun.grads.add(kFirst, at::full({5, 7}, 1e30));
  EXPECT_FALSE(begun.grads.flags(kFirst).any());
  begun.grads.add(kFirst, at::full({5, 7}, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(begun.grads.flags(kFirst).non_finite);
}

TEST(GradAccumulator, ConvertsPiecesWithEachParametersScale) {
  const ParamLayout layout = layout_of_test();
  GradAccumulator grads(layout, Reduction::Exact, 4);
  grads.begin_update(std::vector<int>{48, 32, 16, 48}, std::vector<int64_t>{1, 1, 1, 1});
  grads.add(kFirst, at::full({5, 7}, 0.5));
  grads.add(kTable, at::full({1000, 300}, 0.25));
  const int64_t pieces_of_table = layout.slot(kTable).num_pieces();
  for (int64_t piece = 0; piece < 4 * layout.shard_pieces(0, 4); ++piece) {
    std::vector<float> room(kPieceElements, 9);
    const float want = piece == 0 ? 0.5F : piece <= pieces_of_table ? 0.25F : 0.0F;
    EXPECT_EQ(grads.gradient(0, piece, room).front(), want) << "piece " << piece;
  }
}

TEST(GradAccumulator, GivesZerosForAPieceWithoutContributionAndLeavesItsSumsAlone) {
  const ParamLayout layout = layout_of_test();
  for (const Reduction reduction : {Reduction::Exact, Reduction::Float32}) {
    GradAccumulator grads(layout, reduction, 1);
    const std::vector<int> scales(4, 48);
    const std::vector<int64_t> contributions(4, 1);
    grads.begin_update(scales, contributions);
    grads.add(kUnused, at::ones({64, 64}));
    const at::Tensor sums = grads.segment(layout.slot(kUnused).segment);
    const at::Tensor before = sums.clone();
    grads.begin_update(scales, contributions);
    EXPECT_EQ(gradient(grads, layout, kUnused).abs().max().item<float>(), 0);
    EXPECT_TRUE(equal_bits(sums, before)) << "nothing was cleared for it";
    ThreadTeam team(2);
    grads.clear_rest(team);
    EXPECT_EQ(sums.count_nonzero().item<int64_t>(), 0);
    EXPECT_EQ(gradient(grads, layout, kUnused).abs().max().item<float>(), 0);
  }
}

/// What ranks 0..2 add in one update: all to the table, one to the norm, none to what is unused.
void add_as_rank(GradAccumulator& grads, int rank) {
  grads.begin_update(std::vector<int>(4, 48), std::vector<int64_t>(4, 6));
  for (const double value : {1.25, -0.5}) grads.add(kTable, at::full({1000, 300}, value * (rank + 1)));
  if (rank == 1) grads.add(kNorm, at::full({300}, 3.0));
}

TEST(GradAccumulator, SumsOverTheRanksWhereTheirSumsLie) {
  const ParamLayout layout = layout_of_test();
  for (const Reduction reduction : {Reduction::Exact, Reduction::Float32}) {
    std::vector<at::Tensor> memory;
    for (int rank = 0; rank < 3; ++rank) {
      memory.push_back(at::zeros({GradAccumulator::num_bytes(layout, reduction, 3)}, at::kByte));
    }
    std::vector<std::unique_ptr<GradAccumulator>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
      ranks.push_back(std::make_unique<GradAccumulator>(layout, reduction, 3, memory, rank));
    }
    for (int update = 0; update < 2; ++update) {
      for (int rank = 0; rank < 3; ++rank) add_as_rank(*ranks[static_cast<size_t>(rank)], rank);
      const std::vector<std::pair<ParamId, float>> sums = {{kFirst, 0.0F}, {kTable, 4.5F}, {kNorm, 3.0F}, {kUnused, 0.0F}};
      for (const auto& [id, want] : sums) {
        const ParamSlot& slot = layout.slot(id);
        for (int64_t piece = 0; piece < slot.num_pieces(); ++piece) {
          GradAccumulator& owner = *ranks[static_cast<size_t>(piece % 3)];  // anyone may be
          const int64_t of_segment = slot.offset / kPieceElements + piece;
          std::vector<float> room(static_cast<size_t>(std::min(kPieceElements, slot.numel - piece * kPieceElements)), 9);
          const auto summed = owner.sum_over_ranks(slot.segment, of_segment, room);
          EXPECT_EQ(std::vector<float>(summed.begin(), summed.end()), std::vector<float>(room.size(), want)) << id << " " << piece;
          const auto kept = owner.gradient(slot.segment, of_segment, room);
          EXPECT_EQ(std::vector<float>(kept.begin(), kept.end()), std::vector<float>(room.size(), want)) << id << " " << piece;
        }
      }
    }
  }
}

TEST(GradAccumulator, ClearsTheRestAndOnlyTheRest) {
  const ParamLayout layout = layout_of_test();
  const at::Tensor grad = at::ones({300});
  Begun alone(layout, Reduction::Exact, 3, 4), together(layout, Reduction::Exact, 3, 4);
  for (GradAccumulator* grads : {&alone.grads, &together.grads}) {
    grads->add(kTable, at::ones({1000, 300}));
    grads->begin_update(std::vector<int>(4, 48), std::vector<int64_t>(4, 4));
    grads->add(kNorm, grad);
    grads->add_rows(kTable, at::tensor(std::vector<int64_t>{500}), at::ones({1, 300}));
  }
  ThreadTeam team(3);
  together.grads.clear_rest(team);
  for (int segment = 0; segment < layout.num_segments(); ++segment) {
    EXPECT_TRUE(equal_bits(together.grads.segment(segment), alone.grads.segment(segment))) << segment;
  }
}

TEST(GradAccumulator, RefusesWrongShapesDtypesAndRows) {
  const ParamLayout layout = layout_of_test();
  Begun begun(layout, Reduction::Exact, 1, 1);
  EXPECT_THROW(begun.grads.add(kFirst, at::ones({7, 5})), Error);
  EXPECT_THROW(begun.grads.add(kFirst, at::ones({7, 5}).t()), Error);
  EXPECT_THROW(begun.grads.add(kFirst, at::ones({5, 7}, at::TensorOptions().dtype(at::kLong))), Error);
  EXPECT_THROW(begun.grads.add_rows(kTable, at::tensor(std::vector<int64_t>{1000}), at::ones({1, 300})), Error);
  EXPECT_THROW(begun.grads.add_rows(kTable, at::tensor(std::vector<int64_t>{-1}), at::ones({1, 300})), Error);
  EXPECT_THROW(begun.grads.add_rows(kNorm, at::tensor(std::vector<int64_t>{0}), at::ones({1, 300})), Error);
}

}  // namespace
}  // namespace lockstep::tensor
