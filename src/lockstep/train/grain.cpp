#include "lockstep/train/grain.h"

#include "lockstep/base/error.h"
#include "lockstep/train/finite.h"

#include <ATen/ops/empty.h>

#include <span>
#include <utility>

namespace lockstep::train {

namespace {

/// Keys the randomness: documents of one packed sample must not share it. A sample's first document has the sample's ordinal.
uint64_t ordinal_of_document(uint64_t sample, size_t document) { return sample | (static_cast<uint64_t>(document) << 44); }

}  // namespace

model::GrainInput make_grain(const GrainRows& grain, const std::vector<data::TokenRow>& rows) {
  model::GrainInput input;
  input.token_T = at::empty({grain.num_tokens}, at::kInt);
  input.position_T = at::empty({grain.num_tokens}, at::kInt);
  input.target_T = at::empty({grain.num_tokens}, at::kInt);
  auto* token = input.token_T.data_ptr<int32_t>();
  auto* position = input.position_T.data_ptr<int32_t>();
  auto* target = input.target_T.data_ptr<int32_t>();
  int64_t t = 0;
  input.doc_starts.push_back(0);
  for (size_t r = 0; r < grain.rows.size(); ++r) {
    const data::TokenRow& row = rows[static_cast<size_t>(grain.rows[r])];
    const data::TokenRow::Document whole{static_cast<int64_t>(row.ids.size()), row.source_row};
    const auto documents = row.documents.empty() ? std::span(&whole, 1) : std::span(row.documents);
    int64_t start = 0;
    for (size_t d = 0; d < documents.size(); ++d) {
      const int64_t end = start + documents[d].length;
      for (int64_t i = start; i < end; ++i, ++t) {
        const auto at = static_cast<size_t>(i);
        token[t] = row.ids[at];
        position[t] = static_cast<int32_t>(i - start);
        target[t] = i + 1 < end && row.trained[at + 1] != 0 ? row.ids[at + 1] : -1;
      }
      input.doc_starts.push_back(t);
      input.sample_ids.push_back(documents[d].source_row);
      input.ordinals.push_back(ordinal_of_document(grain.ordinals[r], d));
      start = end;
    }
  }
  LS_CHECK(t == grain.num_tokens, "{} tokens packed, {} planned", t, grain.num_tokens);
  return input;
}

loss::LmHead head_of(const model::Decoder& decoder) {
  return {decoder.final_norm(), decoder.head_weight_id(), decoder.config().logit_softcap};
}

namespace {

/// The load-balancing loss of a grain over all its layers: its scope is the grain, its weight the grain's tokens.
void add_router_loss(const model::Decoder& decoder, const model::RouterStatistics& router, const model::GrainInput& grain,
                     loss::LossSums& sums) {
  if (decoder.config().experts.router_loss > 0) sums.router.add(static_cast<double>(grain.num_tokens()) * router.loss());
}

}  // namespace

loss::LossSums run_grain(const Network& network, const model::GrainInput& grain, const Divisors& divisors, model::Keep keep,
                         tensor::GradSink& sink, const std::function<void()>& after_forward) {
  const model::Decoder& decoder = network.decoder;
  std::vector<model::LayerSaved> saved(static_cast<size_t>(decoder.num_layers()));

  at::Tensor x_TH = decoder.embed_forward(network.params, grain);
  for (int layer = 0; layer < decoder.num_layers(); ++layer) {
    x_TH = decoder.layer_forward(network.params, layer, std::move(x_TH), grain, keep, saved[static_cast<size_t>(layer)]);
  }
  loss::HeadBackward head = loss::lm_head_backward(network.params, network.head, x_TH, grain, divisors.targets, sink);
  x_TH.reset();
  if (const double coefficient = decoder.config().experts.router_loss; coefficient > 0) {
    model::RouterStatistics router;
    for (const model::LayerSaved& layer : saved) router.add(layer.router);
    add_router_loss(decoder, router, grain, head.sums);
    const std::vector<double> slope = router.slope(coefficient * static_cast<double>(grain.num_tokens()) / divisors.tokens);
    for (model::LayerSaved& layer : saved) layer.router_slope_E = slope;
  }
  after_forward();

  at::Tensor dx_TH = std::move(head.dx_TH);
  for (int layer = decoder.num_layers() - 1; layer >= 0; --layer) {
    decoder.layer_backward(network.params, layer, dx_TH, grain, std::move(saved[static_cast<size_t>(layer)]), sink);
  }
  decoder.embed_backward(network.params, grain, dx_TH, sink);
  return head.sums;
}

loss::LossSums forward_grain(const Network& network, const model::GrainInput& grain) {
  const model::Decoder& decoder = network.decoder;
  model::LayerSaved nothing;
  model::RouterStatistics router;
  at::Tensor x_TH = decoder.embed_forward(network.params, grain);
  for (int layer = 0; layer < decoder.num_layers(); ++layer) {
    x_TH = decoder.layer_forward(network.params, layer, std::move(x_TH), grain, model::Keep::Nothing, nothing);
    router.add(nothing.router);
  }
  loss::LossSums sums = loss::lm_head_forward(network.params, network.head, x_TH, grain);
  add_router_loss(decoder, router, grain, sums);
  return sums;
}

std::optional<NonFiniteReport> diagnose_grain(const Network& network, const model::GrainInput& grain, const Divisors& divisors) {
  const model::Decoder& decoder = network.decoder;
  model::LayerSaved nothing;
  at::Tensor x_TH = decoder.embed_forward(network.params, grain);
  if (!all_finite(x_TH)) return NonFiniteReport{"embedding", bad_samples(x_TH, grain)};
  for (int layer = 0; layer < decoder.num_layers(); ++layer) {
    x_TH = decoder.layer_forward(network.params, layer, std::move(x_TH), grain, model::Keep::Nothing, nothing);
    if (!all_finite(x_TH)) return NonFiniteReport{fmt::format("layer {}", layer), bad_samples(x_TH, grain)};
  }
  FiniteCheck check;
  const loss::HeadBackward head = loss::lm_head_backward(network.params, network.head, x_TH, grain, divisors.targets, check);
  if (auto ids = bad_documents(head.nll_per_doc, grain); !ids.empty()) return NonFiniteReport{"head", std::move(ids)};
  run_grain(network, grain, divisors, model::Keep::All, check, [] {});
  if (check.first() < 0) return std::nullopt;
  return NonFiniteReport{fmt::format("gradient of {}", network.params.layout().spec(check.first()).name),
                         grain.sample_ids};
}

}  // namespace lockstep::train
