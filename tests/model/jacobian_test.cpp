#include "model/model_rig.h"
#include "model/test_configs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

/// Gradients of a whole model in float64 against central differences, two documents in the grain.
namespace lockstep::testing {
namespace {

struct Case {
  std::string name;
  model::DecoderConfig config;
  double dropout;
};

class Jacobian : public ::testing::TestWithParam<Case> {};

TEST_P(Jacobian, OfEveryParameterTensorIsTheNumericOne) {
  const Case& c = GetParam();
  ModelRig rig(c.config, at::kDouble, {.attention_dropout = c.dropout, .seed = 5, .residual_dropout = c.dropout, .embedding_dropout = c.dropout});
  rig.randomise(3, 0.3);
  const model::GrainInput grain =
      pack({random_document(9, c.config.vocab_size, 0, 2), random_document(13, c.config.vocab_size, 1, 0)});
  const auto divisor = static_cast<double>(num_targets(grain));
  SumSink sink(rig.layout(), at::kDouble);
  rig.backward(grain, divisor, model::Keep::All, sink);

  // Central differences err by step^2 * f''' / 6 + u * |loss| / step, with u = 2^-53: about 1e-10 at this step for
  // derivatives of size 1 to 10, a hundred times below the bound.
  constexpr double kStep = 1e-5, kBound = 1e-8;
  for (tensor::ParamId id = 0; id < rig.layout().num_params(); ++id) {
    const at::Tensor grad = sink.grad(id);
    auto* weight = at::Tensor(rig.store().weight(id)).mutable_data_ptr<double>();
    const at::Tensor picks = random_tensor({6}, at::kDouble, 100 + static_cast<uint64_t>(id), 0.5);
    for (int64_t pick = 0; pick < picks.numel(); ++pick) {
      const double share = picks.const_data_ptr<double>()[pick] + 0.5;
      const auto i = std::min(static_cast<int64_t>(share * static_cast<double>(grad.numel())), grad.numel() - 1);
      const double kept = weight[i];
      weight[i] = kept + kStep;
      const double above = rig.loss(grain, divisor);
      weight[i] = kept - kStep;
      const double below = rig.loss(grain, divisor);
      weight[i] = kept;
      EXPECT_NEAR(grad.const_data_ptr<double>()[i], (above - below) / (2 * kStep), kBound)
          << rig.layout().spec(id).name << " element " << i;
    }
    // A key's bias moves all scores of a query alike, so its gradient is zero; nothing else may be.
    const bool key_bias = rig.layout().spec(id).name.find("k_proj.bias") != std::string::npos;
    EXPECT_TRUE(key_bias || sink.norm(id) > 1e-4) << rig.layout().spec(id).name << ": " << sink.norm(id);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Jacobian,
                         ::testing::Values(Case{"llama", small_llama(), 0},
                                           Case{"llama_with_biases", small_llama_with_biases(), 0},
                                           Case{"qwen2", small_qwen2(), 0}, Case{"qwen3", small_qwen3(), 0},
                                           Case{"qwen3_with_dropout", small_qwen3(), 0.2},
                                           Case{"mistral", small_mistral(), 0}, Case{"gemma2", small_gemma2(), 0.2},
                                           Case{"gemma3", small_gemma3(), 0}, Case{"phi3", small_phi3(), 0},
                                           Case{"mixtral", small_mixtral(), 0}, Case{"qwen3_moe", small_qwen3_moe(), 0},
                                           Case{"gpt2", small_gpt2(), 0}, Case{"gpt2_with_dropout", small_gpt2(), 0.2}),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lockstep::testing
