#include "lockstep/train/flow.h"

#include <algorithm>
#include <cmath>

namespace lockstep::train {
namespace {

bool is_multiple(int64_t update, int64_t steps) { return steps > 0 && update % steps == 0; }

}  // namespace

int64_t steps_of(double value, int64_t total_updates) {
  if (value >= 1) return static_cast<int64_t>(value);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(value * static_cast<double>(total_updates))));
}

FlowDecision after_update(const FlowOptions& options, const FlowPoint& point) {
  const bool last = point.update >= point.total_updates;
  FlowDecision decision;
  decision.log = (point.update == 1 && options.logging_first_step) ||
                 (options.logging == Strategy::Steps && is_multiple(point.update, options.logging_steps)) ||
                 (options.logging == Strategy::Epoch && point.ends_epoch);
  if (options.evaluation == Strategy::Steps) {
    const bool due = is_multiple(point.update, options.eval_steps) || last;
    decision.evaluate = due && options.eval_delay <= static_cast<double>(point.update);
  } else if (options.evaluation == Strategy::Epoch) {
    decision.evaluate = point.ends_epoch && options.eval_delay <= point.epoch;
  }
  decision.save = (options.saving == Strategy::Steps && (is_multiple(point.update, options.save_steps) || last)) ||
                  (options.saving == Strategy::Epoch && point.ends_epoch);
  return decision;
}

}  // namespace lockstep::train
