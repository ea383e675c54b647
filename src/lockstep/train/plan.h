#pragma once

#include "lockstep/data/cut.h"
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

/// What a plan must know of a row.
struct SampleSize {
  int64_t tokens = 0;
  int64_t targets = 0;                      ///< its share of the loss's divisor
};

/// Relative cost of a grain (data/cut.h).
struct CostModel {
  int64_t flops_per_token = 1;              ///< of the products, forward
  int64_t attention_width = 1;              ///< layers x heads x head width
};

/// What one update computes. A pure function of data, options and the number of ranks (which decides `dealt` alone).
struct UpdatePlan {
  data::UpdateSamples samples;
  std::vector<int64_t> lengths;             ///< tokens of each sample
  std::vector<data::Grain> grains;
  std::vector<double> costs;                ///< per grain
  std::vector<std::vector<int64_t>> dealt;  ///< [world_rank] -> grains, in the order they are computed
  int64_t num_tokens = 0;
  int64_t num_targets = 0;                  ///< the divisor of the loss
  std::vector<int64_t> grain_targets;       ///< per grain
};

struct PlanOptions {
  data::CutOptions cut;
  GrainOrder order;
  int64_t num_ranks = 1;
  CostModel cost;
};

/// `sizes`: of every row of the data.
UpdatePlan plan_update(const std::vector<SampleSize>& sizes, data::UpdateSamples samples, const PlanOptions& options);

}  // namespace lockstep::train
