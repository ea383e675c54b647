#include "model/reference.h"

#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <cstdlib>

/// Every value of reference.json of the tiny models, from both spellings of config.json. LOCKSTEP_TINY_SHARED: of those
/// that must not be copied.
namespace lockstep::testing {
namespace {

struct TinyModel {
  std::string name;
  std::string config_file;
};

class TinyModels : public ::testing::TestWithParam<TinyModel> {
 protected:
  std::filesystem::path folder() const {
#ifdef LOCKSTEP_TINY_SHARED
    const char* shared = std::getenv("LOCKSTEP_SHARED");
    return std::filesystem::path(shared == nullptr ? "LOCKSTEP_SHARED is not set" : shared) / "models/tiny" / GetParam().name;
#else
    return std::filesystem::path(LOCKSTEP_TEST_DATA) / "models/tiny" / GetParam().name;
#endif
  }
  model::DecoderConfig config() const { return model::read_decoder_config(folder(), GetParam().config_file); }
  Reference reference() const { return read_reference(folder() / "reference.json"); }
};

TEST_P(TinyModels, Float32LogitsLossesAndGradientsAreThoseOfTransformers) {
  const Tolerance tolerance = float32_tolerance(config());
  ModelRig rig(config(), at::kFloat);
  rig.load(folder());
  const Reference wanted = reference();
  ASSERT_EQ(wanted.cases.size(), 2U);
  for (const ReferenceCase& c : wanted.cases) {
    expect_logits(rig, c, tolerance.logits);
    expect_loss_and_gradients(rig, c, tolerance);
  }
}

TEST_P(TinyModels, TheRouterLossIsThatOfTransformers) {
  const Reference wanted = reference();
  model::DecoderConfig config = this->config();
  ASSERT_EQ(config.experts.count > 0, !wanted.router_case.empty());
  if (wanted.router_case.empty()) return;  // a dense family, whose configuration says so
  EXPECT_EQ(config.experts.stored_router_loss, wanted.router_coefficient);
  EXPECT_EQ(config.experts.router_loss, 0) << "output_router_logits is false";
  config.experts.router_loss = wanted.router_coefficient;
  ModelRig rig(config, at::kFloat);
  rig.load(folder());
  const model::GrainInput grain = pack(wanted.find(wanted.router_case).documents);
  model::RouterStatistics router;
  rig.forward(grain, &router);
  EXPECT_NEAR(router.loss(), wanted.router_loss, 1e-6 * wanted.router_loss);
  EXPECT_NEAR(rig.loss(grain, static_cast<double>(num_targets(grain))), wanted.loss_with_router,
              float32_tolerance(config).loss * wanted.loss_with_router);
}

TEST_P(TinyModels, GreedyTokensAreThoseOfTransformers) {
  ModelRig rig(config(), at::kFloat);
  rig.load(folder());
  const Reference wanted = reference();
  EXPECT_EQ(rig.greedy(wanted.greedy_prompt, wanted.greedy_tokens.size()), wanted.greedy_tokens)
      << "smallest margin " << wanted.greedy_smallest_margin;
}

TEST_P(TinyModels, AdamWTrajectoryIsThatOfTransformers) {
  ModelRig rig(config(), at::kFloat);
  rig.load(folder());
  expect_adamw_trajectory(rig, reference(), float32_tolerance(config()));
}

TEST_P(TinyModels, Bfloat16StaysNearFloat32) {
  const Tolerance tolerance = bfloat16_tolerance(config());
  ModelRig rig(config(), at::kBFloat16);
  rig.load(folder());
  for (const ReferenceCase& c : reference().cases) {
    expect_logits(rig, c, tolerance.logits);
    expect_loss_and_gradients(rig, c, tolerance);
  }
}

#ifdef LOCKSTEP_TINY_SHARED
constexpr std::array kNames{"gemma3"};
#else
constexpr std::array kNames{"llama", "llama-rope3", "llama-sharded", "qwen2", "qwen3", "mistral", "gemma2", "phi3", "gpt2", "mixtral", "qwen3-moe"};
#endif

std::vector<TinyModel> all_models() {
  std::vector<TinyModel> out;
  for (const char* name : kNames)
    for (const char* config_file : {"config.json", "config.v5.json"}) out.push_back({name, config_file});
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, TinyModels, ::testing::ValuesIn(all_models()), [](const auto& test) {
  std::string name = test.param.name + "_" + test.param.config_file;
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace lockstep::testing
