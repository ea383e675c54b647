#include "lockstep/optim/schedule.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::optim {
namespace {

double ratio(int64_t numerator, int64_t denominator) {
  return static_cast<double>(numerator) / static_cast<double>(std::max<int64_t>(1, denominator));
}

}  // namespace

double Schedule::factor(int64_t update) const {
  LS_CHECK(update >= 1, "update = {}", update);
  const int64_t t = update - 1;
  if (kind == Kind::Constant) {
    return 1;
  }
  if (t < warmup_updates) {
    return ratio(t, warmup_updates);
  }
  switch (kind) {
    case Kind::Linear:
      return std::max(0.0, ratio(total_updates - t, total_updates - warmup_updates));
    case Kind::Cosine: {
      const double progress = ratio(t - warmup_updates, total_updates - warmup_updates);
      return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * num_cycles * 2.0 * progress)));
    }
    case Kind::Constant:
    case Kind::ConstantWithWarmup:
      break;
  }
  return 1;
}

Schedule::Kind schedule_kind_from_name(const std::string& name) {
  if (name == "linear") {
    return Schedule::Kind::Linear;
  }
  if (name == "cosine") {
    return Schedule::Kind::Cosine;
  }
  if (name == "constant") {
    return Schedule::Kind::Constant;
  }
  if (name == "constant_with_warmup") {
    return Schedule::Kind::ConstantWithWarmup;
  }
  throw Error::usage("lr_scheduler_type = '{}' is not known. Use linear, cosine, constant or constant_with_warmup.",
                     name);
}

int64_t warmup_updates(double warmup_steps, int64_t total_updates) {
  if (!(warmup_steps >= 0) || warmup_steps > 0x1p53) {
    throw Error::usage("warmup_steps = {} is neither a number of updates (1 or more) nor a share (0 to 1). Try 0.03.",
                       warmup_steps);
  }
  if (warmup_steps >= 1) {
    return static_cast<int64_t>(warmup_steps);
  }
  return static_cast<int64_t>(std::ceil(static_cast<double>(total_updates) * warmup_steps));
}

}  // namespace lockstep::optim
