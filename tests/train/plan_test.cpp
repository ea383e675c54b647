#include "lockstep/train/plan.h"

#include "lockstep/base/error.h"
#include "lockstep/train/sft_task.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::train {
namespace {

/// Row i has i + 2 tokens, ids 10 i, 10 i + 1, ...; the first token is never trained.
std::vector<data::TokenRow> make_rows(int count) {
  std::vector<data::TokenRow> rows;
  for (int row = 0; row < count; ++row) {
    data::TokenRow tokens;
    for (int i = 0; i < row + 2; ++i) {
      tokens.ids.push_back(10 * row + i);
      tokens.trained.push_back(i > 0 ? 1 : 0);
    }
    tokens.source_row = 100 + row;
    rows.push_back(tokens);
  }
  return rows;
}

data::UpdateSamples all_of(const std::vector<data::TokenRow>& rows) {
  data::UpdateSamples samples;
  samples.first_ordinal = 1000;
  for (size_t row = rows.size(); row-- > 0;) samples.rows.push_back(static_cast<int64_t>(row));
  return samples;
}

UpdatePlan make_plan(const std::vector<data::TokenRow>& rows, GrainOrder order, int64_t num_ranks) {
  PlanOptions options;
  options.cut = {.grain_tokens = 16, .min_grains = 5};
  options.order = order;
  options.num_ranks = num_ranks;
  return plan_update(sizes_of(rows), all_of(rows), options);
}

TEST(Plan, EveryGrainIsDealtOnceWhateverTheOrder) {
  const std::vector<data::TokenRow> rows = make_rows(12);
  for (const char* order : {"ascending", "descending", "shuffled:1", "shuffled:77"}) {
    for (const int64_t ranks : {1, 2, 3, 8, 20}) {
      const UpdatePlan plan = make_plan(rows, grain_order_from_text(order), ranks);
      ASSERT_EQ(plan.dealt.size(), static_cast<size_t>(ranks));
      std::vector<int64_t> seen;
      for (const auto& mine : plan.dealt) seen.insert(seen.end(), mine.begin(), mine.end());
      std::sort(seen.begin(), seen.end());
      ASSERT_EQ(seen.size(), plan.grains.size()) << order << " on " << ranks;
      for (size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<int64_t>(i)) << order << " on " << ranks;
    }
  }
}

TEST(Plan, TheCutDoesNotDependOnRanksOrOrder) {
  const std::vector<data::TokenRow> rows = make_rows(12);
  const UpdatePlan one = make_plan(rows, {}, 1);
  const UpdatePlan other = make_plan(rows, grain_order_from_text("shuffled:3"), 4);
  ASSERT_EQ(one.grains.size(), other.grains.size());
  for (size_t i = 0; i < one.grains.size(); ++i) EXPECT_EQ(one.grains[i].members, other.grains[i].members);
  EXPECT_EQ(one.costs, other.costs);
}

TEST(Plan, ShufflesDifferBySeed) {
  const std::vector<data::TokenRow> rows = make_rows(40);
  const auto dealt = [&](const char* order) { return make_plan(rows, grain_order_from_text(order), 3).dealt; };
  EXPECT_EQ(dealt("shuffled:1"), dealt("shuffled:1"));
  EXPECT_NE(dealt("shuffled:1"), dealt("shuffled:2"));
}

TEST(Plan, CountsTokensAndTargets) {
  const std::vector<data::TokenRow> rows = make_rows(3);  // 2 + 3 + 4 tokens
  const UpdatePlan plan = make_plan(rows, {}, 1);
  EXPECT_EQ(plan.num_tokens, 9);
  EXPECT_EQ(plan.num_targets, 6);
  EXPECT_EQ(plan.lengths, (std::vector<int64_t>{4, 3, 2}));
}

TEST(GrainOrder, RefusesOtherWords) {
  for (const char* text : {"", "random", "shuffled", "shuffled:", "shuffled:x", "shuffled:1x"}) {
    try {
      grain_order_from_text(text);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::Usage);
      EXPECT_NE(std::string(error.what()).find("shuffled:SEED"), std::string::npos);
    }
  }
}

std::vector<int32_t> ints(const at::Tensor& tensor) {
  const auto* data = tensor.const_data_ptr<int32_t>();
  return {data, data + tensor.numel()};
}

TEST(MakeGrain, PacksDocumentsWithPositionsAndShiftedTargets) {
  std::vector<data::TokenRow> rows(2);
  rows[0] = {.ids = {5, 6, 7}, .trained = {1, 0, 1}, .source_row = 40};
  rows[1] = {.ids = {8, 9}, .trained = {0, 1}, .source_row = 41};
  UpdatePlan plan;
  plan.samples.rows = {1, 0};
  plan.samples.first_ordinal = 7;
  const model::GrainInput grain = make_grain(rows_of(plan, {.members = {0, 1}, .num_tokens = 5}), rows);
  EXPECT_EQ(ints(grain.token_T), (std::vector<int32_t>{8, 9, 5, 6, 7}));
  EXPECT_EQ(ints(grain.position_T), (std::vector<int32_t>{0, 1, 0, 1, 2}));
  EXPECT_EQ(ints(grain.target_T), (std::vector<int32_t>{9, -1, -1, 7, -1})) << "nothing crosses a document's end";
  EXPECT_EQ(grain.doc_starts, (std::vector<int64_t>{0, 2, 5}));
  EXPECT_EQ(grain.ordinals, (std::vector<uint64_t>{7, 8}));
  EXPECT_EQ(grain.sample_ids, (std::vector<int64_t>{41, 40}));
}

TEST(MakeGrain, KeepsTheDocumentsOfPackedRowsApart) {
  std::vector<data::TokenRow> rows(2);
  rows[0] = {.ids = {5, 6, 7, 8, 9}, .trained = {1, 1, 1, 1, 1}, .source_row = 40, .documents = {{3, 40}, {2, 12}}};
  rows[1] = {.ids = {3, 4}, .trained = {1, 1}, .source_row = 41};
  UpdatePlan plan;
  plan.samples.rows = {0, 1};
  plan.samples.first_ordinal = 7;
  const model::GrainInput grain = make_grain(rows_of(plan, {.members = {0, 1}, .num_tokens = 7}), rows);
  EXPECT_EQ(ints(grain.position_T), (std::vector<int32_t>{0, 1, 2, 0, 1, 0, 1}));
  EXPECT_EQ(ints(grain.target_T), (std::vector<int32_t>{6, 7, -1, 9, -1, 4, -1}));
  EXPECT_EQ(grain.doc_starts, (std::vector<int64_t>{0, 3, 5, 7}));
  EXPECT_EQ(grain.sample_ids, (std::vector<int64_t>{40, 12, 41}));
  EXPECT_EQ(grain.ordinals, (std::vector<uint64_t>{7, 7 + (uint64_t{1} << 44), 8})) << "no two share their dropout";
}

}  // namespace
}  // namespace lockstep::train
