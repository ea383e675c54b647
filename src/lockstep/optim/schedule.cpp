#include "lockstep/optim/schedule.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::optim {
namespace {

using Kind = Schedule::Kind;
using Shape = Schedule::Shape;

double ratio(int64_t numerator, int64_t denominator) {
  return static_cast<double>(numerator) / static_cast<double>(std::max<int64_t>(1, denominator));
}

double half_wave(double num_cycles, double progress) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * num_cycles * 2.0 * progress));
}

/// [0, 1] squeezed into [floor, 1].
double squeeze(double factor, double floor) { return std::max(0.0, factor * (1.0 - floor) + floor); }

double polynomial(const Schedule& s, int64_t t) {
  if (t > s.total_updates) return s.lr_end / s.peak;
  const double progress = ratio(t - s.warmup_updates, s.total_updates - s.warmup_updates);
  return ((s.peak - s.lr_end) * std::pow(1 - progress, s.power) + s.lr_end) / s.peak;
}

double cosine_warmup_with_min_lr(const Schedule& s, int64_t t) {
  if (t < s.warmup_updates) {
    if (!s.warmup_factor) return ratio(t + 1, s.warmup_updates);
    return *s.warmup_factor + (1.0 - *s.warmup_factor) * static_cast<double>(t) /
                                  static_cast<double>(std::max<int64_t>(1, s.warmup_updates - 1));
  }
  const double progress = ratio(t - s.warmup_updates + 1, s.total_updates - s.warmup_updates);
  return squeeze(half_wave(s.num_cycles, progress), s.min_factor);
}

double going_up(Shape shape, double x) {
  switch (shape) {
    case Shape::Linear: return x;
    case Shape::Cosine: return 0.5 * (1.0 - std::cos(std::numbers::pi * x));
    case Shape::OneMinusSqrt: break;
  }
  return 1.0 - std::sqrt(1.0 - x);
}

double going_down(const Schedule& s, double x) {
  switch (s.decay_shape) {
    case Shape::Linear: return 1.0 - x;
    case Shape::Cosine: return half_wave(s.num_cycles, x);
    case Shape::OneMinusSqrt: break;
  }
  return 1.0 - std::sqrt(x);
}

double warmup_stable_decay(const Schedule& s, int64_t t) {
  if (t < s.warmup_updates) return squeeze(going_up(s.warmup_shape, ratio(t, s.warmup_updates)), s.min_factor);
  const int64_t since_peak = t - s.warmup_updates;
  if (since_peak < s.stable_updates) return 1;
  const int64_t since_stable = since_peak - s.stable_updates;
  if (since_stable >= s.decay_updates) return s.min_factor;
  return squeeze(going_down(s, ratio(since_stable, s.decay_updates)), s.min_factor);
}

/// After the plain warm-up.
double after_warmup(const Schedule& s, int64_t t) {
  const double progress = ratio(t - s.warmup_updates, s.total_updates - s.warmup_updates);
  switch (s.kind) {
    case Kind::Linear:
      return std::max(0.0, ratio(s.total_updates - t, s.total_updates - s.warmup_updates));
    case Kind::Cosine:
      return std::max(0.0, half_wave(s.num_cycles, progress));
    case Kind::CosineWithRestarts:
      if (progress >= 1.0) return 0;
      return std::max(0.0, 0.5 * (1.0 + std::cos(std::numbers::pi * std::fmod(s.num_cycles * progress, 1.0))));
    case Kind::CosineWithMinLr:
      return squeeze(half_wave(s.num_cycles, progress), s.min_factor);
    case Kind::Polynomial:
      return polynomial(s, t);
    case Kind::InverseSqrt: {
      const auto scale = static_cast<double>(s.timescale);
      return 1.0 / std::sqrt((static_cast<double>(t - s.warmup_updates) + scale) / scale);
    }
    default:
      return 1;
  }
}

}  // namespace

double Schedule::factor(int64_t update) const {
  LS_CHECK(update >= 1, "update = {}", update);
  LS_CHECK(!follows_metric(), "a metric-driven schedule is no function of the update");
  const int64_t t = update - 1;
  if (kind == Kind::Constant) return 1;
  if (kind == Kind::CosineWarmupWithMinLr) return cosine_warmup_with_min_lr(*this, t);
  if (kind == Kind::WarmupStableDecay) return warmup_stable_decay(*this, t);
  return t < warmup_updates ? ratio(t, warmup_updates) : after_warmup(*this, t);
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
