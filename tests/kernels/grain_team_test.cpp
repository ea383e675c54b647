// A team of threads computes the same bits as one thread: rows are only ever cut apart.
#include "lockstep/base/grain_team.h"
#include "lockstep/kernels/activation.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/elementwise.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/kernels/norm.h"
#include "lockstep/kernels/rope.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

namespace lockstep::kernels {
namespace {

using Tensors = std::vector<at::Tensor>;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

/// `compute` without a team, and with teams of several sizes that have too few threads or enough.
void expect_same_bits(const std::function<Tensors()>& compute) {
  const Tensors alone = compute();
  for (const auto& [parts, threads] : {std::pair{2, 2}, std::pair{3, 2}, std::pair{5, 1}, std::pair{7, 7}}) {
    GrainTeam team(parts, threads);
    const GrainTeamScope scope(&team);
    const Tensors shared = compute();
    ASSERT_EQ(shared.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_TRUE(same_bits(alone[i], shared[i])) << "result " << i << ", " << parts << " parts, " << threads << " threads";
    }
  }
}

at::Tensor numbers(at::IntArrayRef shape, at::ScalarType dtype) { return at::randn(shape, at::kFloat).to(dtype); }

class Team : public ::testing::TestWithParam<at::ScalarType> {};

TEST_P(Team, Norms) {
  const at::ScalarType dtype = GetParam();
  for (const int64_t rows : {1, 16, 17, 500, 1003}) {
    const at::Tensor x = numbers({rows, 200}, at::kFloat), delta = numbers({rows, 200}, dtype), dy = numbers({rows, 200}, dtype);
    const at::Tensor w = numbers({200}, at::kFloat), b = numbers({200}, at::kFloat), dx = numbers({rows, 200}, at::kFloat);
    expect_same_bits([&] {
      at::Tensor sum = x.clone(), grad = dx.clone();
      const RmsNormResult y = add_rms_norm_forward(sum, delta, w, 1e-5, dtype);
      const at::Tensor dw = rms_norm_backward(dy, sum, y.rstd_R, w, grad);
      return Tensors{sum, y.y_RN, y.rstd_R, rms_norm_apply(sum, y.rstd_R, w, dtype), grad, dw};
    });
    expect_same_bits([&] {
      at::Tensor sum = x.clone(), grad = dx.clone();
      const LayerNormResult y = add_layer_norm_forward(sum, delta, w, b, 1e-5, dtype);
      const LayerNormGrads grads = layer_norm_backward(grad, sum, y.moments, w);
      return Tensors{sum, y.y_RN, y.moments.mean_R, y.moments.rstd_R, grad, grads.dw_N, grads.db_N};
    });
  }
}

TEST_P(Team, ElementwiseAndRotations) {
  const at::ScalarType dtype = GetParam();
  for (const int64_t rows : {1, 33, 700}) {
    const at::Tensor gate = numbers({rows, 300}, dtype), up = numbers({rows, 300}, dtype), dh = numbers({rows, 300}, dtype);
    expect_same_bits([&] {
      const SwigluGrads grads = swiglu_backward(dh, gate, up);
      at::Tensor sum = at::zeros({rows, 300}, at::kFloat);
      add_into(sum, gate);
      return Tensors{swiglu_forward(gate, up), grads.dgate_TM, grads.dup_TM, sum, convert(gate, at::kFloat),
                     activation_forward(Activation::Gelu, up), activation_backward(Activation::Gelu, dh, up)};
    });
    const at::Tensor frequencies = at::arange(1, 17, at::kDouble).reciprocal();
    const RopeTable table = rope_table(frequencies, 1024, 1, dtype);
    const at::Tensor position = at::arange(rows, at::kInt), heads = numbers({rows, 6, 32}, dtype);
    expect_same_bits([&] {
      at::Tensor turned = heads.clone(), back = heads.clone();
      rope_forward(turned, position, table);
      rope_backward(back, position, table);
      return Tensors{turned, back};
    });
  }
}

// By the kernel on tiles; what libtorch gives for other rows it does not promise.
TEST(TeamOnTiles, LinearLayers) {
  for (const int64_t rows : {1, 64, 65, 500}) {
    const at::Tensor x = numbers({rows, 96}, at::kBFloat16), w = numbers({160, 96}, at::kBFloat16), b = numbers({160}, at::kFloat);
    const at::Tensor dy = numbers({rows, 160}, at::kBFloat16);
    const auto compute = [&] { return Tensors{linear_forward(x, w, b), linear_backward_input(dy, w)}; };
    if (attention_path(at::kBFloat16, 32) == AttentionPath::Tiles) {
      expect_same_bits(compute);
    } else {
      GrainTeam team(2, 2);
      const GrainTeamScope scope(&team);
      const Tensors shared = compute();
      EXPECT_TRUE(at::allclose(shared[0].to(at::kFloat), at::linear(x, w, b.to(at::kBFloat16)).to(at::kFloat), 0.02, 0.05));
    }
  }
}

TEST_P(Team, Loss) {
  const at::Tensor logits = numbers({150, 1000}, GetParam()), target = at::randint(1000, {150}, at::kInt);
  expect_same_bits([&] {
    at::Tensor grad = logits.clone();
    const CrossEntropyResult result = cross_entropy(grad, target, 0.01, true);
    return Tensors{grad, result.nll_C, result.entropy_C, result.top1_C};
  });
}

TEST_P(Team, AttentionOfDocumentsAndHeads) {
  const std::vector<int64_t> starts = {0, 40, 41, 300, 428};
  const std::vector<uint64_t> ordinals = {3, 1, 4, 15};
  const auto heads = [&](int64_t count) { return numbers({starts.back(), count, 32}, GetParam()); };
  const at::Tensor q = heads(6), k = heads(2), v = heads(2), d_o = heads(6);
  for (const double probability : {0.0, 0.2}) {
    AttentionConfig config{.scale = 0.2, .dropout = {}};
    config.dropout = {.probability = probability, .seed = 5, .module = 2, .ordinals = ordinals};
    expect_same_bits([&] {
      const AttentionSaved saved = attention_forward(q, k, v, starts, config);
      const AttentionGrads grads = attention_backward(d_o, q, k, v, saved, starts, config);
      return Tensors{saved.o_TND, saved.lse_NT, grads.dq_TND, grads.dk_TKD, grads.dv_TKD};
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Team, ::testing::Values(at::kBFloat16, at::kFloat),
                         [](const auto& param) { return std::string(param.param == at::kFloat ? "fp32" : "bf16"); });

}  // namespace
}  // namespace lockstep::kernels
