#include "model/model_rig.h"

#include "lockstep/base/hash.h"
#include "lockstep/base/philox.h"
#include "lockstep/model/weights.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace lockstep::testing {
namespace {

constexpr int64_t kMaxPositions = 256;

std::span<const std::byte> bytes_of(const at::Tensor& x) {
  return {static_cast<const std::byte*>(x.const_data_ptr()), x.nbytes()};
}

at::Tensor int32_tensor(const std::vector<int32_t>& values) {
  at::Tensor out = at::empty({static_cast<int64_t>(values.size())}, at::kInt);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<int32_t>());
  return out;
}

}  // namespace

Document document_with_all_targets(std::vector<int32_t> tokens) {
  Document out{tokens, {tokens.begin() + 1, tokens.end()}};
  out.targets.push_back(-1);
  return out;
}

Document random_document(int64_t num_tokens, int64_t vocab_size, uint64_t ordinal, int64_t trained_from) {
  const RandomStream random{.seed = 7, .ordinal = ordinal};
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < num_tokens; ++t)
    tokens.push_back(static_cast<int32_t>(random.word(static_cast<uint64_t>(t)) % static_cast<uint64_t>(vocab_size)));
  Document out = document_with_all_targets(std::move(tokens));
  std::fill(out.targets.begin(), out.targets.begin() + trained_from, -1);
  return out;
}

model::GrainInput pack(const std::vector<Document>& documents) {
  std::vector<int32_t> tokens, positions, targets;
  model::GrainInput grain;
  grain.doc_starts.push_back(0);
  for (const Document& document : documents) {
    for (size_t i = 0; i < document.tokens.size(); ++i) positions.push_back(static_cast<int32_t>(i));
    tokens.insert(tokens.end(), document.tokens.begin(), document.tokens.end());
    targets.insert(targets.end(), document.targets.begin(), document.targets.end());
    grain.ordinals.push_back(grain.ordinals.size());
    grain.sample_ids.push_back(static_cast<int64_t>(grain.sample_ids.size()));
    grain.doc_starts.push_back(static_cast<int64_t>(tokens.size()));
  }
  grain.token_T = int32_tensor(tokens);
  grain.position_T = int32_tensor(positions);
  grain.target_T = int32_tensor(targets);
  return grain;
}

int64_t num_targets(const model::GrainInput& grain) {
  const auto* target = grain.target_T.const_data_ptr<int32_t>();
  return std::count_if(target, target + grain.num_tokens(), [](int32_t id) { return id >= 0; });
}

// ---- gradients -------------------------------------------------------------

SumSink::SumSink(const tensor::ParamLayout& layout, at::ScalarType dtype) {
  for (int id = 0; id < layout.num_params(); ++id) grads_.push_back(at::zeros(layout.spec(id).shape, dtype));
}

void SumSink::add(tensor::ParamId id, const at::Tensor& grad) {
  const std::scoped_lock lock(mutex_);
  SumSink::grad(id).add_(grad.to(SumSink::grad(id).scalar_type()));
  ++num_contributions_;
}

void SumSink::add_rows(tensor::ParamId id, const at::Tensor& rows, const at::Tensor& grad) {
  const std::scoped_lock lock(mutex_);
  SumSink::grad(id).index_add_(0, rows, grad.to(SumSink::grad(id).scalar_type()));
  ++num_contributions_;
}

double SumSink::norm(tensor::ParamId id) const {
  const at::Tensor wide = grad(id).to(at::kDouble);
  const auto* values = wide.const_data_ptr<double>();
  double sum = 0;
  for (int64_t i = 0; i < wide.numel(); ++i) sum += values[i] * values[i];
  return std::sqrt(sum);
}

double SumSink::total_norm() const {
  double sum = 0;
  for (size_t id = 0; id < grads_.size(); ++id) sum += std::pow(norm(static_cast<int>(id)), 2);
  return std::sqrt(sum);
}

uint64_t SumSink::hash() const {
  uint64_t value = 0;
  for (const at::Tensor& grad : grads_) value = hash_bytes(bytes_of(grad), value);
  return value;
}

void SumSink::clear() {
  for (at::Tensor& grad : grads_) grad.zero_();
  num_contributions_ = 0;
}

// ---- the model -------------------------------------------------------------

ModelRig::ModelRig(const model::DecoderConfig& config, at::ScalarType compute_dtype, model::DecoderOptions options)
    : layout_(model::Decoder::param_specs(config)),
      store_(layout_, compute_dtype, 1),
      decoder_(config, kMaxPositions, compute_dtype, options),
      head_{decoder_.final_norm(), decoder_.head_weight_id(), config.logit_softcap} {}

void ModelRig::load(const std::filesystem::path& folder) {
  const tensor::WeightFiles files = tensor::WeightFiles::open(folder);
  model::load_weights(layout_, files, decoder_.config().tie_word_embeddings,
                      [&](tensor::ParamId id, const at::Tensor& stored) {
                        at::Tensor weight = store_.weight(id);
                        weight.copy_(stored);
                      });
}

void ModelRig::randomise(uint64_t seed, double scale) {
  for (tensor::ParamId id = 0; id < layout_.num_params(); ++id) {
    at::Tensor weight = store_.weight(id);
    const bool norm_weight = layout_.spec(id).name.find("norm") != std::string::npos;
    weight.copy_(random_tensor(weight.sizes(), at::kDouble, seed * 1000 + static_cast<uint64_t>(id), scale)
                     .add_(norm_weight ? 1.0 : 0.0));
  }
}

at::Tensor ModelRig::forward(const model::GrainInput& grain, model::RouterStatistics* router) const {
  at::Tensor x_TH = decoder_.embed_forward(store_, grain);
  model::LayerSaved unused;
  for (int layer = 0; layer < decoder_.num_layers(); ++layer) {
    x_TH = decoder_.layer_forward(store_, layer, std::move(x_TH), grain, model::Keep::Nothing, unused);
    if (router != nullptr) router->add(unused.router);
  }
  return x_TH;
}

double ModelRig::loss(const model::GrainInput& grain, double divisor) const {
  model::RouterStatistics router;
  const at::Tensor x_TH = forward(grain, &router);
  return loss::lm_head_forward(store_, head_, x_TH, grain).nll.value() / divisor +
         decoder_.config().experts.router_loss * router.loss();
}

double ModelRig::backward(const model::GrainInput& grain, double divisor, model::Keep keep,
                          tensor::GradSink& sink) const {
  const int num_layers = decoder_.num_layers();
  std::vector<model::LayerSaved> saved(static_cast<size_t>(num_layers));
  at::Tensor x_TH = decoder_.embed_forward(store_, grain);
  for (int layer = 0; layer < num_layers; ++layer)
    x_TH = decoder_.layer_forward(store_, layer, std::move(x_TH), grain, keep, saved[static_cast<size_t>(layer)]);
  loss::HeadBackward head = loss::lm_head_backward(store_, head_, x_TH, grain, divisor, sink);
  const double coefficient = decoder_.config().experts.router_loss;
  model::RouterStatistics router;
  for (const model::LayerSaved& layer : saved) router.add(layer.router);
  for (model::LayerSaved& layer : saved)
    if (coefficient > 0) layer.router_slope_E = router.slope(coefficient);
  for (int layer = num_layers - 1; layer >= 0; --layer)
    decoder_.layer_backward(store_, layer, head.dx_TH, grain, std::move(saved[static_cast<size_t>(layer)]), sink);
  decoder_.embed_backward(store_, grain, head.dx_TH, sink);
  return head.sums.nll.value() / divisor + coefficient * router.loss();
}

std::vector<int32_t> ModelRig::greedy(std::vector<int32_t> prompt, size_t num_new) const {
  const size_t prompt_length = prompt.size();
  while (prompt.size() < prompt_length + num_new) {
    const model::GrainInput grain = pack({document_with_all_targets(prompt)});
    at::Tensor last = at::empty({1}, at::kLong);
    *last.mutable_data_ptr<int64_t>() = grain.num_tokens() - 1;
    const at::Tensor logits = loss::lm_head_logits(store_, head_, forward(grain), last).to(at::kDouble);
    const auto* values = logits.const_data_ptr<double>();
    prompt.push_back(static_cast<int32_t>(std::max_element(values, values + logits.numel()) - values));
  }
  return {prompt.begin() + static_cast<long>(prompt_length), prompt.end()};
}

// ---- tensors ---------------------------------------------------------------

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.is_contiguous() && b.is_contiguous() &&
         std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

at::Tensor shifted_copy(const at::Tensor& x) {
  at::Tensor out = at::empty({x.numel() + 1}, x.scalar_type()).narrow(0, 1, x.numel()).view(x.sizes());
  out.copy_(x);
  return out;
}

at::Tensor random_tensor(at::IntArrayRef sizes, at::ScalarType dtype, uint64_t ordinal, double scale) {
  at::Tensor out = at::empty(sizes, at::kDouble);
  std::vector<uint32_t> words(static_cast<size_t>(out.numel()));
  RandomStream{.seed = 11, .ordinal = ordinal}.fill(words.data(), 0, words.size());
  auto* values = out.mutable_data_ptr<double>();
  for (const uint32_t word : words) *values++ = scale * (static_cast<double>(word) * 0x1p-31 - 1);
  return out.to(dtype);
}

}  // namespace lockstep::testing
