#pragma once

#include "lockstep/data/cut.h"
#include "lockstep/data/examples.h"
#include "lockstep/data/order.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::train {

/// Who computes which grain, and in which order. Cannot show in the result; other values than Ascending are for the
/// tests of that claim.
struct GrainOrder {
  enum class Kind { Ascending, Descending, Shuffled };
  Kind kind = Kind::Ascending;
  uint64_t seed = 0;  ///< Shuffled: grains are dealt and ordered by a generator of (seed, update)
};
/// "ascending", "descending" or "shuffled:SEED"; Error{Usage} otherwise.
GrainOrder grain_order_from_text(const std::string& text);

/// What one update computes. A pure function of data, options and the number of ranks (which decides `dealt` alone).
struct UpdatePlan {
  data::UpdateSamples samples;
  std::vector<int64_t> lengths;             ///< tokens of each sample
  std::vector<data::Grain> grains;
  std::vector<double> costs;                ///< per grain
  std::vector<std::vector<int64_t>> dealt;  ///< [world_rank] -> grains, in the order they are computed
  int64_t num_tokens = 0;
  int64_t num_targets = 0;                  ///< the divisor of the loss
  int64_t num_head_chunks = 0;
};

struct PlanOptions {
  data::CutOptions cut;
  GrainOrder order;
  int64_t num_ranks = 1;
  int64_t flops_per_token = 1;   ///< of the products, forward; scales the cost
  int64_t attention_width = 1;   ///< layers x heads x head width
  int64_t vocab_size = 1;
};

UpdatePlan plan_update(const std::vector<data::TokenRow>& rows, data::UpdateSamples samples, const PlanOptions& options);

}  // namespace lockstep::train
