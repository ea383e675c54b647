#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// The choice of the next token from its logits. Torch-free, pure functions.
namespace lockstep::train {

/// As transformers' logits processors of these names, in its order.
struct SamplingOptions {
  double temperature = 0;              ///< 0: greedy, the lowest id of the largest logits
  int64_t top_k = 0;                   ///< 0: all
  double top_p = 1, min_p = 0;
  double repetition_penalty = 1;       ///< over the prompt and what was generated
  uint64_t seed = 0;
};

/// `seen`: the sequence so far. `ordinal`, `position`: of the prompt and of the token in its completion; with the seed they
/// are the key of the random number, so a text does not depend on what else is generated.
int32_t next_token(std::span<const float> logits, std::span<const int32_t> seen, const SamplingOptions& options, uint64_t ordinal,
                   uint64_t position);

}  // namespace lockstep::train
