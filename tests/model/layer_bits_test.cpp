#include "model/model_rig.h"
#include "model/test_configs.h"

#include "lockstep/base/thread_team.h"

#include <gtest/gtest.h>

#include <utility>

/// What must not show in a single bit.
namespace lockstep::testing {
namespace {

struct LayerCase {
  std::string name;
  model::DecoderConfig config;
  at::ScalarType dtype;
  double dropout;
};

class LayerBits : public ::testing::TestWithParam<LayerCase> {
 protected:
  LayerBits() : rig_(GetParam().config, GetParam().dtype, {.attention_dropout = GetParam().dropout, .seed = 5, .residual_dropout = GetParam().dropout}) {
    rig_.randomise(3, 0.3);
    const int64_t vocab = GetParam().config.vocab_size;
    grain_ = pack(
        {random_document(37, vocab, 0, 0), random_document(5, vocab, 1, 1), random_document(70, vocab, 2, 9)});
    x_TH_ = random_tensor({grain_.num_tokens(), GetParam().config.hidden_size}, stream(), 50, 1);
    dx_TH_ = random_tensor(x_TH_.sizes(), stream(), 51, 0.1);
  }
  at::ScalarType stream() const { return GetParam().dtype == at::kDouble ? at::kDouble : at::kFloat; }

  struct Result {
    at::Tensor out_TH, dx_TH;
    uint64_t grads = 0;
    bool operator==(const Result& other) const {
      return same_bits(out_TH, other.out_TH) && same_bits(dx_TH, other.dx_TH) && grads == other.grads;
    }
  };
  /// Layer 1 forward and backward; x and dx are used up.
  Result run(at::Tensor x_TH, at::Tensor dx_TH, model::Keep keep) const {
    SumSink sink(rig_.layout(), at::kFloat);
    model::LayerSaved saved;
    Result out;
    out.out_TH = rig_.decoder().layer_forward(rig_.store(), 1, std::move(x_TH), grain_, keep, saved);
    rig_.decoder().layer_backward(rig_.store(), 1, dx_TH, grain_, std::move(saved), sink);
    out.dx_TH = dx_TH;
    out.grads = sink.hash();
    return out;
  }

  ModelRig rig_;
  model::GrainInput grain_;
  at::Tensor x_TH_, dx_TH_;
};

TEST_P(LayerBits, DoNotDependOnAlignment) {
  const Result aligned = run(x_TH_.clone(), dx_TH_.clone(), model::Keep::All);
  EXPECT_TRUE(run(shifted_copy(x_TH_), shifted_copy(dx_TH_), model::Keep::All) == aligned);
}

TEST_P(LayerBits, DoNotDependOnThreads) {
  const Result alone = run(x_TH_.clone(), dx_TH_.clone(), model::Keep::All);
  std::vector<Result> together(8);
  ThreadTeam(4).run(together.size(), [&](size_t item, int) {
    together[item] = run(x_TH_.clone(), dx_TH_.clone(), model::Keep::All);
  });
  for (const Result& result : together) EXPECT_TRUE(result == alone);
}

TEST_P(LayerBits, RecomputedLayersAreTheKeptOnes) {
  const Result kept = run(x_TH_.clone(), dx_TH_.clone(), model::Keep::All);
  EXPECT_TRUE(run(x_TH_.clone(), dx_TH_.clone(), model::Keep::InputOnly) == kept);

  model::LayerSaved unused;
  const at::Tensor evaluated =
      rig_.decoder().layer_forward(rig_.store(), 1, x_TH_.clone(), grain_, model::Keep::Nothing, unused);
  EXPECT_TRUE(same_bits(evaluated, kept.out_TH));
  EXPECT_FALSE(unused.x_TH.defined());
}

TEST_P(LayerBits, WholeModelHasTheSameGradientsKeptAndRecomputed) {
  SumSink kept(rig_.layout(), at::kFloat), recomputed(rig_.layout(), at::kFloat);
  rig_.backward(grain_, 100, model::Keep::All, kept);
  rig_.backward(grain_, 100, model::Keep::InputOnly, recomputed);
  for (tensor::ParamId id = 0; id < rig_.layout().num_params(); ++id)
    EXPECT_TRUE(same_bits(kept.grad(id), recomputed.grad(id))) << rig_.layout().spec(id).name;
}

TEST_P(LayerBits, ADifferentInputShows) {
  const Result first = run(x_TH_.clone(), dx_TH_.clone(), model::Keep::All);
  at::Tensor changed = x_TH_.clone();
  changed.view({-1}).narrow(0, 17, 1).add_(0.25);
  EXPECT_FALSE(run(changed, dx_TH_.clone(), model::Keep::All) == first);
}

TEST_P(LayerBits, SavedBytesAreTheOnesThePlanIsTold) {
  for (const model::Keep keep : {model::Keep::All, model::Keep::InputOnly, model::Keep::Nothing}) {
    model::LayerSaved saved;
    rig_.decoder().layer_forward(rig_.store(), 1, x_TH_.clone(), grain_, keep, saved);
    int64_t bytes = 0;
    for (const at::Tensor* x : {&saved.x_TH, &saved.norm1.rstd_R, &saved.norm1.mean_R, &saved.q_TND, &saved.k_TKD, &saved.v_TKD,
                                &saved.q_raw_TND, &saved.k_raw_TKD, &saved.q_norm.rstd_R, &saved.k_norm.rstd_R,
                                &saved.attention.o_TND, &saved.attention.lse_NT, &saved.branch1_TH, &saved.branch2_TH,
                                &saved.post1.rstd_R, &saved.post2.rstd_R, &saved.x_mid_TH, &saved.norm2.rstd_R,
                                &saved.norm2.mean_R, &saved.gate_TM, &saved.up_TM})
      if (x->defined()) bytes += static_cast<int64_t>(x->nbytes());
    const model::ExpertsSaved& experts = saved.experts;
    for (const std::vector<at::Tensor>& list :
         {experts.gate, experts.up, std::vector{experts.probability_TE, experts.share_S, experts.row_S}})
      for (const at::Tensor& x : list)
        if (x.defined()) bytes += static_cast<int64_t>(x.nbytes());
    EXPECT_EQ(bytes, rig_.decoder().saved_bytes_per_layer(grain_.num_tokens(), keep));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Families, LayerBits,
    ::testing::Values(LayerCase{"llama_bf16", small_llama(), at::kBFloat16, 0},
                      LayerCase{"llama_f32", small_llama(), at::kFloat, 0},
                      LayerCase{"llama_biases_bf16", small_llama_with_biases(), at::kBFloat16, 0.1},
                      LayerCase{"qwen2_f32", small_qwen2(), at::kFloat, 0.1},
                      LayerCase{"qwen3_bf16", small_qwen3(), at::kBFloat16, 0.1},
                      LayerCase{"qwen3_f32", small_qwen3(), at::kFloat, 0},
                      LayerCase{"qwen3_f64", small_qwen3(), at::kDouble, 0.1},
                      LayerCase{"mistral_bf16", small_mistral(), at::kBFloat16, 0},
                      LayerCase{"gemma2_bf16", small_gemma2(), at::kBFloat16, 0},
                      LayerCase{"gemma3_f32", small_gemma3(), at::kFloat, 0},
                      LayerCase{"phi3_bf16", small_phi3(), at::kBFloat16, 0.1},
                      LayerCase{"mixtral_bf16", small_mixtral(), at::kBFloat16, 0},
                      LayerCase{"mixtral_f32", small_mixtral(), at::kFloat, 0},
                      LayerCase{"gpt2_bf16", small_gpt2(), at::kBFloat16, 0.1},
                      LayerCase{"gpt2_f32", small_gpt2(), at::kFloat, 0}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace lockstep::testing
