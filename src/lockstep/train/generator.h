#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/model/decoder.h"
#include "lockstep/tensor/param_store.h"
#include "lockstep/train/sampler.h"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lockstep::train {

struct GenerationOptions {
  int64_t max_new_tokens = 256;
  int64_t batch_size = 8;               ///< sequences that are continued together; cannot be seen in the tokens
  std::vector<int32_t> end_ids;         ///< each ends a sequence
  SamplingOptions sampling;
};

struct Prompt {
  std::vector<int32_t> ids;             ///< at least one
  uint64_t ordinal = 0;                 ///< keys its random numbers
};

/// Called for each new token that is not an end, in the caller's thread; false ends the sequence.
using OnToken = std::function<bool(size_t prompt, int32_t id)>;

/// The tokens that follow each prompt, without the end. A prompt is computed alone in one forward pass (prompts of a batch
/// by the team's threads), then a token at a time for all sequences of the batch, each row alone (kernels/decode.h): the
/// tokens are the same for every batch size and team. `decoder` was made without dropout and for prompts with their new tokens.
std::vector<std::vector<int32_t>> generate(const model::Decoder& decoder, const tensor::ParamStore& params,
                                           std::span<const Prompt> prompts, const GenerationOptions& options, ThreadTeam& team,
                                           const OnToken& on_token = {});

}  // namespace lockstep::train
