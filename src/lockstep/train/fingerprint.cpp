#include "lockstep/train/fingerprint.h"

#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/philox.h"
#include "lockstep/kernels/activation.h"
#include "lockstep/kernels/attention.h"
#include "lockstep/kernels/cpu/amx.h"
#include "lockstep/kernels/cross_entropy.h"
#include "lockstep/kernels/glu.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/linear.h"
#include "lockstep/kernels/norm.h"
#include "lockstep/model/products.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/tensor/exact.h"
#include "lockstep/tensor/grad_accumulator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

namespace lockstep::train {
namespace {

/// Uniform in [-1, 1), from the module's own stream.
at::Tensor random_tensor(std::vector<int64_t> shape, uint32_t module, at::ScalarType dtype) {
  at::Tensor values = at::empty(shape, at::kFloat);
  const RandomStream stream{.seed = 1, .purpose = RandomPurpose::Fingerprint, .module = module};
  auto* data = values.data_ptr<float>();
  std::vector<uint32_t> words(static_cast<size_t>(values.numel()));
  stream.fill(words.data(), 0, words.size());
  // As RandomStream::uniform() makes them of a word.
  std::transform(words.begin(), words.end(), data, [](uint32_t word) { return 2 * (static_cast<float>(word >> 8) * 0x1p-24F) - 1; });
  return values.to(dtype);
}

class Hasher {
 public:
  void add(const std::string& name, std::initializer_list<at::Tensor> results) {
    uint64_t hash = 0;
    for (const at::Tensor& result : results) {
      const at::Tensor flat = result.contiguous();
      hash = hash_bytes({static_cast<const std::byte*>(flat.data_ptr()), flat.nbytes()}, hash);
    }
    fingerprint_.kernels.emplace_back(name, hash);
  }
  Fingerprint take() { return std::move(fingerprint_); }

 private:
  Fingerprint fingerprint_;
};

/// What dy_TO^T x_TI leaves in an accumulator.
at::Tensor weight_gradient_sum(const at::Tensor& dy_TO, const at::Tensor& x_TI) {
  const tensor::ParamLayout layout({{.name = "w", .shape = {dy_TO.size(1), x_TI.size(1)}, .block = 0}});
  tensor::GradAccumulator grads(layout, tensor::Reduction::Exact, 1);
  model::add_weight_gradient(0, dy_TO, x_TI, grads);
  return grads.segment(0);
}

void hash_products(Hasher& hasher, at::ScalarType dtype) {
  constexpr int64_t kTokens = 93, kIn = 192, kOut = 320;
  constexpr int64_t kSlabs = 1536;  // a contraction in several slabs (kernels/cpu/linear_amx.h)
  const at::Tensor x = random_tensor({kTokens, kIn}, 1, dtype);
  const at::Tensor w = random_tensor({kOut, kIn}, 2, dtype);
  const at::Tensor dy = random_tensor({kTokens, kOut}, 3, dtype);
  hasher.add("linear forward", {kernels::linear_forward(x, w)});
  hasher.add("linear backward input", {kernels::linear_backward_input(dy, w)});
  hasher.add("linear backward weight", {weight_gradient_sum(dy, x)});
  if (dtype != at::kBFloat16 || !kernels::cpu::amx::available()) return;
  const at::Tensor long_x = random_tensor({kTokens, kSlabs}, 12, dtype), long_w = random_tensor({kOut, kSlabs}, 13, dtype);
  hasher.add("AMX linear forward", {kernels::linear_forward(long_x, long_w, random_tensor({kOut}, 14, at::kFloat))});
}

void hash_attention(Hasher& hasher, at::ScalarType dtype) {
  constexpr int64_t kTokens = 120, kHeads = 4, kKeyHeads = 2, kWidth = 32;
  const std::vector<int64_t> starts{0, 37, kTokens};
  const at::Tensor q = random_tensor({kTokens, kHeads, kWidth}, 4, dtype);
  const at::Tensor k = random_tensor({kTokens, kKeyHeads, kWidth}, 5, dtype);
  const at::Tensor v = random_tensor({kTokens, kKeyHeads, kWidth}, 6, dtype);
  // By name, too: one look tells a processor without tiles from a miscompiled kernel.
  const bool tiles = kernels::attention_path(dtype, kWidth) == kernels::AttentionPath::Tiles;
  const std::string path = tiles ? "AMX " : "";
  for (const bool causal : {true, false}) {
    const kernels::AttentionConfig config{.scale = 0.25, .dropout = {}, .causal = causal};
    const kernels::AttentionSaved saved = kernels::attention_forward(q, k, v, starts, config);
    const kernels::AttentionGrads grads = kernels::attention_backward(q, q, k, v, saved, starts, config);
    const std::string name = path + (causal ? "attention" : "attention over whole documents");
    hasher.add(name + " forward", {saved.o_TND, saved.lse_NT});
    hasher.add(name + " backward", {grads.dq_TND, grads.dk_TKD, grads.dv_TKD});
  }
}

void hash_elementwise(Hasher& hasher, at::ScalarType dtype) {
  constexpr int64_t kRows = 61, kWidth = 192;
  const at::Tensor x = random_tensor({kRows, kWidth}, 7, at::kFloat);
  const at::Tensor w = random_tensor({kWidth}, 8, at::kFloat);
  const at::Tensor dy = random_tensor({kRows, kWidth}, 9, dtype);
  const kernels::RmsNormResult norm = kernels::rms_norm_forward(x, w, 1e-5, dtype);
  at::Tensor dx = at::zeros({kRows, kWidth}, at::kFloat);
  const at::Tensor dw = kernels::rms_norm_backward(dy, x, norm.rstd_R, w, dx);
  hasher.add("norm", {norm.y_RN, norm.rstd_R, dx, dw});

  const at::Tensor gate = random_tensor({kRows, kWidth}, 10, dtype);
  const kernels::SwigluGrads grads = kernels::swiglu_backward(dy, gate, norm.y_RN);
  hasher.add("swiglu", {kernels::swiglu_forward(gate, norm.y_RN), grads.dgate_TM, grads.dup_TM});

  at::Tensor logits = random_tensor({kRows, kWidth}, 11, dtype);
  const at::Tensor target = at::arange(kRows, at::kInt);
  const kernels::CrossEntropyResult loss = kernels::cross_entropy(logits, target, 1.0 / kRows, true);
  hasher.add("cross entropy", {loss.nll_C, loss.entropy_C, loss.top1_C, logits});
}

/// Of encoders alone.
void hash_encoder(Hasher& hasher, at::ScalarType dtype) {
  constexpr int64_t kRows = 61, kWidth = 192;
  const at::Tensor x = random_tensor({kRows, kWidth}, 14, at::kFloat);
  const at::Tensor w = random_tensor({kWidth}, 15, at::kFloat), b = random_tensor({kWidth}, 16, at::kFloat);
  const kernels::LayerNormResult norm = kernels::layer_norm_forward(x, w, b, 1e-12, dtype);
  at::Tensor dy = random_tensor({kRows, kWidth}, 17, at::kFloat);
  const kernels::LayerNormGrads grads = kernels::layer_norm_backward(dy, x, norm.moments, w);
  hasher.add("layer norm", {norm.y_RN, dy, grads.dw_N, grads.db_N});
  const at::Tensor z = random_tensor({kRows, kWidth}, 18, dtype);
  for (const auto& [name, activation] : {std::pair{"gelu", kernels::Activation::Gelu},
                                         std::pair{"tanh", kernels::Activation::Tanh}}) {
    hasher.add(name, {kernels::activation_forward(activation, z), kernels::activation_backward(activation, norm.y_RN, z)});
  }
}

void hash_update(Hasher& hasher) {
  constexpr int64_t kElements = 1000;
  const at::Tensor grad = random_tensor({kElements}, 12, at::kFloat);
  at::Tensor sum = at::zeros({kElements}, at::kLong);
  const std::span<const float> grad_span{grad.data_ptr<float>(), kElements};
  tensor::exact_add({sum.data_ptr<int64_t>(), kElements}, grad_span, tensor::kDefaultScaleBits,
                    tensor::exact_limit(1000));
  at::Tensor master = random_tensor({kElements}, 13, at::kFloat);
  at::Tensor exp_avg = at::zeros({kElements}, at::kFloat);
  at::Tensor exp_avg_sq = at::zeros({kElements}, at::kFloat);
  optim::adamw_step({master.data_ptr<float>(), kElements}, {exp_avg.data_ptr<float>(), kElements},
                    {exp_avg_sq.data_ptr<float>(), kElements}, grad_span,
                    {.learning_rate = 1e-3, .weight_decay = 0.1, .step = 3});
  hasher.add("exact sum", {sum});
  hasher.add("adamw", {master, exp_avg, exp_avg_sq});
}

std::string to_text(const Fingerprint& fingerprint) {
  std::string text;
  for (const auto& [name, hash] : fingerprint.kernels) text += to_hex(hash) + " " + name + "\n";
  return text;
}

}  // namespace

std::future<Fingerprint> begin_fingerprint(at::ScalarType compute_dtype) { return std::async(take_fingerprint, compute_dtype); }

Fingerprint take_fingerprint(at::ScalarType compute_dtype) {
  Hasher hasher;
  hash_products(hasher, compute_dtype);
  hash_attention(hasher, compute_dtype);
  hash_elementwise(hasher, compute_dtype);
  hash_encoder(hasher, compute_dtype);
  hash_update(hasher);
  return hasher.take();
}

void require_equal_fingerprints(const Fingerprint& mine, comm::Communicator& comm) {
  const std::vector<std::string> all = comm.all_gather_text(to_text(mine), "fingerprint of the kernels");
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    // The texts have one line per kernel in the same order: the first differing line names it.
    const size_t at = static_cast<size_t>(std::mismatch(all[0].begin(), all[0].end(), all[rank].begin(),
                                                        all[rank].end()).first - all[0].begin());
    const size_t line = at == 0 ? 0 : all[0].rfind('\n', at - 1) + 1;
    const std::string kernel = all[0].substr(line + 17, all[0].find('\n', line) - line - 17);
    throw Error::environment("ranks 0 and {} do not compute the same bits: '{}' is the first kernel that differs. All "
                             "processes of a run need the same processor type and the same build.",
                             rank, kernel);
  }
}

}  // namespace lockstep::train
