// What a replay says: the first update and blocks that differ, what it means, what to try.
#include "lockstep/recipes/replay_words.h"

#include <gtest/gtest.h>

namespace lockstep::recipes {
namespace {

UpdateRecord logged_update(int64_t update) { return {update, 0.5, 2, 1e-3, false, {"aaaa", "bbbb", "cccc", "dddd"}}; }

ReplayFacts facts() { return {.run = "out", .start = "out/checkpoint-100", .start_update = 100, .num_processes = 2, .num_threads = 1}; }

std::string said(const UpdateRecord& logged, const UpdateRecord& replayed, const ReplayFacts& how) {
  return other_bits_text(logged, replayed, compare_update(logged, replayed), how);
}

void expect_says(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in:\n" << text;
}

TEST(ReplayWords, SuccessIsOneLine) {
  EXPECT_EQ(same_bits_text(101, 120, 0), "Updates 101 to 120 give the logged bits");
  EXPECT_EQ(same_bits_text(7, 7, 0), "Update 7 gives the logged bits");
  expect_says(same_bits_text(1, 7, 2), "(2 of them could not be compared");
}

TEST(ReplayWords, BlocksHaveNames) {
  EXPECT_EQ(block_name(0, 4), "embedding");
  EXPECT_EQ(block_name(1, 4), "layer 0");
  EXPECT_EQ(block_name(2, 4), "layer 1");
  EXPECT_EQ(block_name(3, 4), "head");
}

TEST(ReplayWords, AnOptimizerStepNamesItsBlocksWithBothHashes) {
  UpdateRecord replayed = logged_update(104);
  replayed.block_hashes[2] = "eeee";
  const std::string text = said(logged_update(104), replayed, facts());
  expect_says(text, "update 104 gives other bits than out logged (replayed from out/checkpoint-100, 2 processes x 1 thread)");
  expect_says(text, "layer 1      cccc               eeee");
  EXPECT_EQ(text.find("layer 0"), std::string::npos) << text;
  expect_says(text, "the optimizer's step came out otherwise");
  expect_says(text, "Before it, updates 101 to 103 had the logged bits.");
  expect_says(text, "lockstep replay out --update 104 --nproc_per_node 1 --threads_per_process 1");
  EXPECT_EQ(text.find("wrong optimizer state"), std::string::npos) << "the updates before had it too\n" << text;
}

TEST(ReplayWords, RightAfterACheckpointItsStateIsASuspect) {
  UpdateRecord replayed = logged_update(101);
  replayed.block_hashes[3] = "eeee";
  expect_says(said(logged_update(101), replayed, facts()), "Does out/checkpoint-100 hold a wrong optimizer state?");
  expect_says(said(logged_update(101), replayed, facts()), "lockstep replay out --update 100\n");

  ReplayFacts from_the_beginning = facts();
  from_the_beginning.start.clear();
  from_the_beginning.start_update = 100;
  EXPECT_EQ(said(logged_update(101), replayed, from_the_beginning).find("optimizer state?"), std::string::npos);
}

TEST(ReplayWords, TheEarliestThingThatDiffersIsToldFirst) {
  UpdateRecord replayed = logged_update(104);
  replayed.grad_norm = 3;
  expect_says(said(logged_update(104), replayed, facts()), "the backward pass or the sum over processes");
  expect_says(said(logged_update(104), replayed, facts()), "the hashes of all blocks are the logged ones");
  replayed.loss = 0.25;
  expect_says(said(logged_update(104), replayed, facts()), "the forward pass came out otherwise from the weights before it");
  expect_says(said(logged_update(104), replayed, facts()), "loss         0.5                0.25");
  replayed.skipped = true;
  expect_says(said(logged_update(104), replayed, facts()), "The replay alone left out the update as not finite");
  replayed.learning_rate = 1;
  expect_says(said(logged_update(104), replayed, facts()), "other options");
  replayed.block_hashes.pop_back();
  expect_says(said(logged_update(104), replayed, facts()), "4 blocks were logged, the model has 3");
}

TEST(ReplayWords, ManyBlocksAreCounted) {
  UpdateRecord logged = logged_update(104), replayed = logged;
  logged.block_hashes.assign(40, "aaaa");
  replayed.block_hashes.assign(40, "bbbb");
  expect_says(said(logged, replayed, facts()), "and 28 more of 40 blocks");
}

TEST(ReplayWords, PlainSumsAreNoLaw) {
  ReplayFacts plain = facts();
  plain.exact = false;
  UpdateRecord replayed = logged_update(104);
  replayed.block_hashes[0] = "eeee";
  expect_says(said(logged_update(104), replayed, plain), "--reduction float32");
  EXPECT_EQ(said(logged_update(104), replayed, facts()).find("float32"), std::string::npos);
}

TEST(ReplayWords, ACheckpointWithOtherWeightsThanItsUpdate) {
  UpdateRecord found = logged_update(100);
  found.block_hashes[1] = "eeee";
  const std::string text = other_start_text(logged_update(100), found, compare_update(logged_update(100), found), facts());
  expect_says(text, "out/checkpoint-100 does not hold the weights that out logged for update 100");
  expect_says(text, "layer 0      bbbb               eeee");
  expect_says(text, "lockstep replay out --update 100");
}

TEST(ReplayWords, ACheckpointWithAnotherOptimizerState) {
  const std::string text =
      other_checkpoint_text(120, "out/checkpoint-120", {{"layer 1", "model.layers.1.w", "exp_avg", 1, 4096}}, facts());
  expect_says(text, "out/checkpoint-120 holds other values");
  expect_says(text, "layer 1      exp_avg of model.layers.1.w: 1 of 4096 elements");
}

TEST(ReplayWords, OtherKernelsAreTheFirstSuspects) {
  EXPECT_EQ(other_kernels_text(facts()), "");
  ReplayFacts elsewhere = facts();
  elsewhere.other_kernels = {"adamw"};
  expect_says(other_kernels_text(elsewhere), "adamw gives other bits here");
  elsewhere.other_kernels = {"linear forward", "adamw"};
  expect_says(other_kernels_text(elsewhere), "linear forward, adamw give other bits here");
  UpdateRecord replayed = logged_update(101);
  replayed.block_hashes[3] = "eeee";
  const std::string text = said(logged_update(101), replayed, elsewhere);
  expect_says(text, "What to try:\n- There are other kernels than the run's: linear forward, adamw give other bits");
}

TEST(ReplayWords, OtherWeightsNameTheirBlocksAndWhetherTheyMatter) {
  ReplayFacts beginning = facts();
  beginning.start.clear();
  const std::string text = other_weights_text(beginning, {0, 2}, 4);
  expect_says(text, "not those that out began with: 2 of 4 blocks differ (embedding, layer 1)");
  expect_says(text, "--checkpoint DIR");
  expect_says(other_weights_text(facts(), {0, 2}, 4), "; the replay takes those of out/checkpoint-100");
  std::vector<size_t> many(30);
  for (size_t i = 0; i < many.size(); ++i) many[i] = i;
  expect_says(other_weights_text(facts(), many, 30), "layer 10, 18 more)");
}

}  // namespace
}  // namespace lockstep::recipes
