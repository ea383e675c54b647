#include "lockstep/options/nearest.h"

#include <gtest/gtest.h>

#include <array>
#include <string_view>

#include "lockstep/options/resolve.h"
#include "lockstep/recipes/sft_options.h"

namespace lockstep::options {
namespace {

std::string advice(std::string_view written) {
  recipes::SftOptions sft;
  return unknown_key_advice(collect(sft), written, "--");
}

TEST(Nearest, FindsTheOptionBehindATypingError) {
  EXPECT_EQ(advice("lerning_rate"), "Did you mean --learning_rate?");
  EXPECT_EQ(advice("learning-rte"), "Did you mean --learning_rate?");
  EXPECT_EQ(advice("ouput_dir").substr(0, 24), "Did you mean --output_di");
  EXPECT_EQ(advice("sede"), "Did you mean --seed?");
  EXPECT_EQ(advice("train_batch_size").substr(0, 42), "Did you mean --per_device_train_batch_size");
}

TEST(Nearest, NamesTheSuccessorOfAFormerName) {
  EXPECT_EQ(advice("warmup_ratio"),
            "It is part of --warmup_steps now: a value below 1 is a share of all updates.");
  EXPECT_EQ(advice("evaluation-strategy"), "It is called --eval_strategy now.");
  EXPECT_EQ(advice("lr"), "It is called --learning_rate.");
}

TEST(Nearest, SaysWhereToLookOtherwise) { EXPECT_EQ(advice("qwertyuiop"), "--help lists all flags."); }

TEST(Nearest, AFormerNameIsNoBeginningOfAnother) {
  recipes::SftOptions sft;
  const std::vector<std::string> args = {"--lr", "1e-5"};
  const Resolved resolved = resolve(args, collect(sft));
  EXPECT_EQ(resolved.problems.texts(), Words{"unknown flag --lr. It is called --learning_rate."});
}

TEST(Nearest, FindsTheWordBehindATypingError) {
  constexpr std::array<std::string_view, 3> kWords = {"sft", "classify", "replay"};
  EXPECT_EQ(nearest_word(kWords, "clasify"), "classify");
  EXPECT_EQ(nearest_word(kWords, "sfft"), "sft");
  EXPECT_EQ(nearest_word(kWords, "reply"), "replay");
  EXPECT_EQ(nearest_word(kWords, "frobnicate"), "");
}

TEST(Nearest, DoesNotOfferHiddenOptions) { EXPECT_EQ(advice("grain_orde").find("grain_order"), std::string::npos); }

}  // namespace
}  // namespace lockstep::options
