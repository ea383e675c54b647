#include "model/reference.h"

#include "lockstep/base/error.h"

#include <gtest/gtest.h>

#include <cstdlib>

/// SmolLM2-135M-Instruct against values computed by transformers. The model is not in the repository: it lies where
/// LOCKSTEP_SMOLLM2 says, or in .models of the source tree.
namespace lockstep::testing {
namespace {

std::filesystem::path model_folder() {
  const char* given = std::getenv("LOCKSTEP_SMOLLM2");
  std::filesystem::path folder = given != nullptr ? given : LOCKSTEP_SMOLLM2_DEFAULT;
  if (!std::filesystem::exists(folder / "model.safetensors"))
    throw Error::environment("{} has no model.safetensors. Run scripts/fetch-smollm2 {}, or set LOCKSTEP_SMOLLM2 to "
                             "the folder that has SmolLM2-135M-Instruct.",
                             folder.string(), folder.string());
  return folder;
}

struct SmolLM2 {
  model::DecoderConfig config = model::read_decoder_config(model_folder());
  Reference wanted =
      read_reference(std::filesystem::path(LOCKSTEP_TEST_DATA) / "models/SmolLM2-135M-Instruct/reference.json");
};

TEST(SmolLM2, Float32LogitsLossesAndGradientsAreThoseOfTransformers) {
  const SmolLM2 smol;
  ModelRig rig(smol.config, at::kFloat);
  rig.load(model_folder());
  const Tolerance tolerance = float32_tolerance(smol.config);
  ASSERT_EQ(smol.wanted.cases.size(), 2U);
  for (const ReferenceCase& c : smol.wanted.cases) {
    expect_logits(rig, c, tolerance.logits);
    expect_loss_and_gradients(rig, c, tolerance);
  }
}

TEST(SmolLM2, Bfloat16StaysNearFloat32) {
  const SmolLM2 smol;
  ModelRig rig(smol.config, at::kBFloat16);
  rig.load(model_folder());
  const Tolerance tolerance = bfloat16_tolerance(smol.config);
  for (const ReferenceCase& c : smol.wanted.cases) {
    expect_logits(rig, c, tolerance.logits);
    expect_loss_and_gradients(rig, c, tolerance);
  }
}

TEST(SmolLM2, GreedyTokensAreThoseOfTransformers) {
  const SmolLM2 smol;
  ModelRig rig(smol.config, at::kFloat);
  rig.load(model_folder());
  EXPECT_EQ(rig.greedy(smol.wanted.greedy_prompt, smol.wanted.greedy_tokens.size()), smol.wanted.greedy_tokens)
      << "smallest margin " << smol.wanted.greedy_smallest_margin;
}

TEST(SmolLM2, AdamWTrajectoryIsThatOfTransformers) {
  const SmolLM2 smol;
  ModelRig rig(smol.config, at::kFloat);
  rig.load(model_folder());
  expect_adamw_trajectory(rig, smol.wanted, float32_tolerance(smol.config));
}

}  // namespace
}  // namespace lockstep::testing
