#include "lockstep/train/generator.h"

#include "lockstep/base/error.h"
#include "lockstep/loss/lm_head.h"
#include "lockstep/model/decoding.h"
#include "lockstep/train/grain.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <memory>
#include <numeric>

namespace lockstep::train {
namespace {

struct Sequence {
  size_t prompt = 0;
  std::vector<int32_t> ids;             ///< the prompt and what followed
  size_t prompt_length = 0;
  std::unique_ptr<model::KvCache> cache;
  std::vector<float> logits;            ///< of the next token
};

/// `ids`: the new tokens of each sequence, at `positions` on.
model::GrainInput grain_of(std::span<const int32_t> ids, std::span<const int32_t> positions, std::vector<int64_t> starts) {
  model::GrainInput grain;
  grain.token_T = at::empty({static_cast<int64_t>(ids.size())}, at::kInt);
  grain.position_T = at::empty({static_cast<int64_t>(ids.size())}, at::kInt);
  std::copy(ids.begin(), ids.end(), grain.token_T.mutable_data_ptr<int32_t>());
  std::copy(positions.begin(), positions.end(), grain.position_T.mutable_data_ptr<int32_t>());
  grain.doc_starts = std::move(starts);
  return grain;
}

/// Float32 logits after the tokens `rows` of the grain.
at::Tensor logits_of(const model::Decoder& decoder, const tensor::ParamStore& params, const model::GrainInput& grain,
                     const std::vector<int64_t>& rows) {
  model::LayerSaved nothing;
  at::Tensor x_TH = decoder.embed_forward(params, grain);
  for (int layer = 0; layer < decoder.num_layers(); ++layer) {
    x_TH = decoder.layer_forward(params, layer, std::move(x_TH), grain, model::Keep::Nothing, nothing);
  }
  at::Tensor row_R = at::empty({static_cast<int64_t>(rows.size())}, at::kLong);
  std::copy(rows.begin(), rows.end(), row_R.mutable_data_ptr<int64_t>());
  return loss::lm_head_logits(params, head_of(decoder), x_TH, row_R).to(at::kFloat).contiguous();
}

void take_logits(const at::Tensor& logits_RV, int64_t row, std::vector<float>& out) {
  const float* values = logits_RV.const_data_ptr<float>() + row * logits_RV.size(1);
  out.assign(values, values + logits_RV.size(1));
}

void prefill(const model::Decoder& decoder, const tensor::ParamStore& params, Sequence& sequence) {
  const auto length = static_cast<int64_t>(sequence.ids.size());
  std::vector<int32_t> positions(sequence.ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  model::GrainInput grain = grain_of(sequence.ids, positions, {0, length});
  grain.caches = {sequence.cache.get()};
  take_logits(logits_of(decoder, params, grain, {length - 1}), 0, sequence.logits);
}

void step(const model::Decoder& decoder, const tensor::ParamStore& params, std::vector<Sequence>& active, ThreadTeam& team) {
  std::vector<int32_t> ids, positions;
  std::vector<int64_t> starts(active.size() + 1), rows(active.size());
  std::iota(starts.begin(), starts.end(), int64_t{0});
  std::iota(rows.begin(), rows.end(), int64_t{0});
  for (const Sequence& sequence : active) {
    ids.push_back(sequence.ids.back());
    positions.push_back(static_cast<int32_t>(sequence.ids.size()) - 1);
  }
  model::GrainInput grain = grain_of(ids, positions, std::move(starts));
  for (const Sequence& sequence : active) grain.caches.push_back(sequence.cache.get());
  const model::TokenByToken scope(team);
  const at::Tensor logits_BV = logits_of(decoder, params, grain, rows);
  for (size_t i = 0; i < active.size(); ++i) take_logits(logits_BV, static_cast<int64_t>(i), active[i].logits);
}

}  // namespace

std::vector<std::vector<int32_t>> generate(const model::Decoder& decoder, const tensor::ParamStore& params,
                                           std::span<const Prompt> prompts, const GenerationOptions& options, ThreadTeam& team,
                                           const OnToken& on_token) {
  std::vector<std::vector<int32_t>> out(prompts.size());
  const auto batch_size = static_cast<size_t>(options.batch_size);
  for (size_t first = 0; first < prompts.size(); first += batch_size) {
    std::vector<Sequence> active(std::min(batch_size, prompts.size() - first));
    team.run(active.size(), [&](size_t i, int) {
      Sequence& sequence = active[i];
      sequence.prompt = first + i;
      sequence.ids = prompts[first + i].ids;
      sequence.prompt_length = sequence.ids.size();
      LS_CHECK(sequence.prompt_length > 0, "prompt {} is empty", first + i);
      const int64_t capacity = static_cast<int64_t>(sequence.prompt_length) + options.max_new_tokens;
      sequence.cache = std::make_unique<model::KvCache>(decoder.config(), params.compute_dtype(), capacity);
      prefill(decoder, params, sequence);
    });
    while (!active.empty()) {
      std::erase_if(active, [&](Sequence& sequence) {
        const auto position = static_cast<uint64_t>(sequence.ids.size() - sequence.prompt_length);
        const int32_t id = next_token(sequence.logits, sequence.ids, options.sampling, prompts[sequence.prompt].ordinal, position);
        if (std::find(options.end_ids.begin(), options.end_ids.end(), id) != options.end_ids.end()) return true;
        sequence.ids.push_back(id);
        out[sequence.prompt].push_back(id);
        const bool goes_on = !on_token || on_token(sequence.prompt, id);
        return !goes_on || static_cast<int64_t>(position) + 1 >= options.max_new_tokens;
      });
      if (!active.empty()) step(decoder, params, active, team);
    }
  }
  return out;
}

}  // namespace lockstep::train
