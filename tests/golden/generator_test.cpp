// Generation: the tokens of transformers, of our own full forward pass, and the same for every batch size and team.
#include "model/reference.h"

#include "lockstep/train/generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace lockstep::testing {
namespace {

std::filesystem::path tiny_folder(const std::string& name) {
  return std::filesystem::path(LOCKSTEP_TEST_DATA) / "models/tiny" / name;
}

class GeneratorOf : public ::testing::TestWithParam<const char*> {};

TEST_P(GeneratorOf, GreedyTokensAreThoseOfTransformersAndOfTheFullForward) {
  const std::filesystem::path folder = tiny_folder(GetParam());
  const model::DecoderConfig config = model::read_decoder_config(folder);
  ModelRig rig(config, at::kFloat);
  rig.load(folder);
  const Reference wanted = read_reference(folder / "reference.json");
  const std::vector<train::Prompt> prompts{{wanted.greedy_prompt, 0}};
  const model::Decoder decoder(config, 64, at::kFloat);
  ThreadTeam team(2);
  train::GenerationOptions options;
  options.max_new_tokens = 30;
  const std::vector<int32_t> got = train::generate(decoder, rig.store(), prompts, options, team)[0];
  EXPECT_EQ(std::vector<int32_t>(got.begin(), got.begin() + static_cast<int64_t>(wanted.greedy_tokens.size())), wanted.greedy_tokens);
  EXPECT_EQ(got, rig.greedy(wanted.greedy_prompt, 30));
}

TEST_P(GeneratorOf, TokensDependNeitherOnTheBatchNorOnTheTeam) {
  const std::filesystem::path folder = tiny_folder(GetParam());
  const model::DecoderConfig config = model::read_decoder_config(folder);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kFloat}) {
    ModelRig rig(config, dtype);
    rig.load(folder);
    std::vector<train::Prompt> prompts;
    for (int64_t i = 0; i < 7; ++i)
      prompts.push_back({random_document(3 + 5 * i, config.vocab_size, static_cast<uint64_t>(i), 0).tokens, static_cast<uint64_t>(i)});
    const model::Decoder decoder(config, 64, dtype);
    train::GenerationOptions options;
    options.max_new_tokens = 20;
    options.end_ids = {5, 6, 7, 8, 9, 10, 11, 12};
    options.sampling = {.temperature = 1.3, .top_k = 100, .top_p = 0.95, .seed = 3};
    options.batch_size = 1;
    ThreadTeam alone(1), two(2);
    const auto simplest = train::generate(decoder, rig.store(), prompts, options, alone);
    for (const int64_t batch_size : {2, 7}) {
      options.batch_size = batch_size;
      EXPECT_EQ(train::generate(decoder, rig.store(), prompts, options, two), simplest) << batch_size;
    }
    options.sampling.seed = 4;
    EXPECT_NE(train::generate(decoder, rig.store(), prompts, options, two), simplest) << "another seed";
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, GeneratorOf,
                         ::testing::Values("llama", "llama-rope3", "qwen2", "qwen3", "mistral", "gemma2", "phi3", "gpt2", "mixtral",
                                           "qwen3-moe"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(GeneratorOfSmolLM2, GreedyTokensAreThoseOfTransformers) {
  const char* given = std::getenv("LOCKSTEP_SMOLLM2");
  const std::filesystem::path folder = given != nullptr ? given : LOCKSTEP_SMOLLM2_DEFAULT;
  ASSERT_TRUE(std::filesystem::exists(folder / "model.safetensors")) << "run scripts/fetch-smollm2 " << folder;
  const model::DecoderConfig config = model::read_decoder_config(folder);
  ModelRig rig(config, at::kFloat);
  rig.load(folder);
  const Reference wanted = read_reference(std::filesystem::path(LOCKSTEP_TEST_DATA) / "models/SmolLM2-135M-Instruct/reference.json");
  const auto count = static_cast<int64_t>(wanted.greedy_tokens.size());
  const model::Decoder decoder(config, static_cast<int64_t>(wanted.greedy_prompt.size()) + count, at::kFloat);
  ThreadTeam team(2);
  train::GenerationOptions options;
  options.max_new_tokens = count;
  const std::vector<train::Prompt> prompts{{wanted.greedy_prompt, 0}};
  EXPECT_EQ(train::generate(decoder, rig.store(), prompts, options, team)[0], wanted.greedy_tokens);
}

// ---- the choice of a token -------------------------------------------------

const std::vector<float> kLogits = {1, 3, 2, 3, -1};

TEST(NextToken, GreedyTakesTheLowestIdOfTheLargestLogits) {
  EXPECT_EQ(train::next_token(kLogits, {}, {}, 0, 0), 1);
  const std::vector<int32_t> seen = {1, 1};
  EXPECT_EQ(train::next_token(kLogits, seen, {.repetition_penalty = 1.1}, 0, 0), 3) << "3 / 1.1 is below 3";
  EXPECT_EQ(train::next_token(std::vector<float>{-1, -2}, std::vector<int32_t>{0}, {.repetition_penalty = 3}, 0, 0), 1)
      << "a negative logit is multiplied";
}

std::vector<int> counts_of(const train::SamplingOptions& options, int draws) {
  std::vector<int> counts(kLogits.size(), 0);
  for (int i = 0; i < draws; ++i) ++counts[static_cast<size_t>(train::next_token(kLogits, {}, options, 7, static_cast<uint64_t>(i)))];
  return counts;
}

TEST(NextToken, SamplingFollowsTheProbabilities) {
  const std::vector<int> counts = counts_of({.temperature = 1}, 20000);
  double sum = 0;
  for (const float logit : kLogits) sum += std::exp(logit);
  for (size_t i = 0; i < kLogits.size(); ++i) {
    const double p = std::exp(kLogits[i]) / sum;
    EXPECT_NEAR(counts[i], 20000 * p, 5 * std::sqrt(20000 * p) + 1) << i;
  }
}

TEST(NextToken, TopKTopPAndMinPLeaveTheUnlikelyOut) {
  // Probabilities 0.0533, 0.394, 0.145, 0.394, 0.00721.
  EXPECT_EQ(counts_of({.temperature = 1, .top_k = 1}, 50)[1], 50);
  const std::vector<int> two = counts_of({.temperature = 1, .top_p = 0.7}, 2000);
  EXPECT_EQ(two[0] + two[2] + two[4], 0);
  EXPECT_GT(std::min(two[1], two[3]), 800);
  const std::vector<int> three = counts_of({.temperature = 1, .min_p = 0.3}, 2000);
  EXPECT_EQ(three[0] + three[4], 0);
  EXPECT_GT(three[2], 150);
}

}  // namespace
}  // namespace lockstep::testing
