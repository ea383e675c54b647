// The law: what does not change the mathematics does not change a bit.
#include "run_layout.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

namespace lockstep::law {
namespace {

const Layout kSimplest{1, 24, 1, 1};
const Layout kLayouts[] = {{1, 8, 3, 1}, {2, 4, 3, 1}, {3, 8, 1, 1}, {4, 6, 1, 1}, {8, 3, 1, 1}, {1, 24, 1, 2}, {1, 24, 1, 4}};

void expect_every_rank_worked(const Outcome& outcome, const Layout& layout) {
  const int64_t least = *std::min_element(outcome.grains_per_rank.begin(), outcome.grains_per_rank.end());
  EXPECT_GE(least, 1) << "a rank of " << layout.text() << " computed nothing";
}

class Law : public ::testing::TestWithParam<std::tuple<std::string, at::ScalarType, double>> {};

TEST_P(Law, TheLayoutCannotBeSeen) {
  Job job;
  job.model = std::get<0>(GetParam());
  job.compute_dtype = std::get<1>(GetParam());
  job.dropout = std::get<2>(GetParam());
  const Outcome simplest = run(job, kSimplest);
  EXPECT_LT(simplest.losses.back(), simplest.losses.front()) << "twenty updates should teach something";
  for (const Layout& layout : kLayouts) {
    const Outcome outcome = run(job, layout);
    EXPECT_EQ(difference(simplest, outcome), "") << layout.text();
    expect_every_rank_worked(outcome, layout);
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, Law,
                         ::testing::Combine(::testing::Values(std::string("llama"), std::string("qwen3")), ::testing::Values(at::kBFloat16, at::kFloat),
                                          ::testing::Values(0.0, 0.1)),
                         [](const auto& param) {
                           return std::get<0>(param.param) +
                                  (std::get<1>(param.param) == at::kFloat ? "_fp32" : "_bf16") +
                                  (std::get<2>(param.param) > 0 ? "_dropout" : "");
                         });

/// What the other families add, in fewer layouts.
class LawOfFamilies : public ::testing::TestWithParam<const char*> {};

TEST_P(LawOfFamilies, TheLayoutCannotBeSeen) {
  Job job;
  job.model = GetParam();
  job.num_updates = 5;
  job.dropout = 0.1;
  const Outcome simplest = run(job, kSimplest);
  EXPECT_EQ(difference(simplest, run(job, {2, 4, 3, 1})), "");
  job.keep = model::Keep::InputOnly;
  EXPECT_EQ(difference(simplest, run(job, {3, 8, 1, 2})), "");
}

INSTANTIATE_TEST_SUITE_P(Tiny, LawOfFamilies, ::testing::Values("mistral", "gemma2", "phi3", "gpt2", "mixtral", "qwen3-moe"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

Job short_job() {
  Job job;
  job.model = "llama";
  job.num_updates = 4;
  job.dropout = 0.1;
  return job;
}

TEST(Law, HoldsForPackedRows) {
  for (const std::string strategy : {"bfd", "bfd_split", "wrapped"}) {
    Job job = short_job();
    job.packing = strategy;
    const Outcome simplest = run(job, kSimplest);
    for (const Layout& layout : {Layout{2, 4, 3, 1}, Layout{3, 8, 1, 2}}) {
      const Outcome outcome = run(job, layout);
      EXPECT_EQ(difference(simplest, outcome), "") << strategy << ", " << layout.text();
      expect_every_rank_worked(outcome, layout);
    }
  }
}

TEST(Law, FiftyRandomAssignmentsOfGrainsAreTheSame) {
  Job job = short_job();
  const Outcome simplest = run(job, kSimplest);
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    job.grain_order = {train::GrainOrder::Kind::Shuffled, seed};
    const int processes = 1 + static_cast<int>(seed % 4);
    const Layout layout{processes, 24 / processes, 1, 1 + static_cast<int>(seed % 3)};
    if (layout.global_batch() != 24) continue;
    EXPECT_EQ(difference(simplest, run(job, layout)), "") << layout.text() << ", seed " << seed;
  }
}

TEST(Law, TheOrderOfGrainsCannotBeSeen) {
  Job job = short_job();
  const Outcome ascending = run(job, kSimplest);
  job.grain_order.kind = train::GrainOrder::Kind::Descending;
  EXPECT_EQ(difference(ascending, run(job, kSimplest)), "");
  EXPECT_EQ(difference(ascending, run(job, {2, 4, 3, 2})), "");
}

TEST(Law, RecomputingCannotBeSeen) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    Job job = short_job();
    job.compute_dtype = dtype;
    const Outcome kept = run(job, kSimplest);
    job.keep = model::Keep::InputOnly;
    EXPECT_EQ(difference(kept, run(job, {2, 12, 1, 1})), "");
  }
}

// Rows of 128 tokens, so that kernels have something to share.
TEST(Law, HoldsForTeamsOfThreadsInAGrain) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    Job job = short_job();
    job.compute_dtype = dtype;
    job.packing = "bfd";
    job.grain_threads = 3;
    const Outcome simplest = run(job, kSimplest);
    for (const Layout& layout : {Layout{1, 24, 1, 3}, Layout{1, 24, 1, 7}, Layout{2, 4, 3, 2}}) {
      const Outcome outcome = run(job, layout);
      EXPECT_EQ(difference(simplest, outcome), "") << layout.text();
      expect_every_rank_worked(outcome, layout);
    }
  }
}

TEST(Law, ARetryForRangeGivesTheSameBitsInEveryLayout) {
  Job job = short_job();
  job.scale_bits = 62;  // gradients near 1 do not fit: the update is computed again with 2^-46
  const Outcome one = run(job, kSimplest);
  EXPECT_GT(one.range_retries, 0) << "the scale was meant to be too fine";
  const Outcome three = run(job, {3, 8, 1, 1});
  EXPECT_EQ(difference(one, three), "");
  EXPECT_EQ(one.range_retries, three.range_retries);
}

// ---- the checks above can fail ----

TEST(LawCanFail, OneDroppedGrainIsSeen) {
  Job job = short_job();
  const Outcome simplest = run(job, kSimplest);
  job.probes.drop_grain = [](int64_t update, int64_t grain) { return update == 3 && grain == 5; };
  EXPECT_EQ(difference(simplest, run(job, {2, 12, 1, 1})).substr(0, 9), "update 3:");
}

TEST(LawCanFail, OneFlippedBitIsSeen) {
  Job job = short_job();
  const Outcome simplest = run(job, kSimplest);
  job.probes.after_backward = [](int64_t update, tensor::GradAccumulator& gradients) {
    // Bit 30 of 2^-48 is 4e-6: a small error in one element of one tensor.
    if (update == 2) gradients.segment(2).data_ptr<int64_t>()[17] ^= int64_t{1} << 30;
  };
  EXPECT_NE(difference(simplest, run(job, kSimplest)), "");
}

TEST(LawCanFail, Float32ReductionIsSeen) {
  Job job = short_job();
  job.num_updates = 20;
  job.reduction = tensor::Reduction::Float32;
  const Outcome one = run(job, kSimplest);
  EXPECT_NE(difference(one, run(job, {3, 8, 1, 1})), "");
}

}  // namespace
}  // namespace lockstep::law
