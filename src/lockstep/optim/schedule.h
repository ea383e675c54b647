#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::optim {

struct OptimOptions;

/// Hugging Face's schedules (transformers/optimization.py 5.24): the factor on the peak learning rate for update number
/// `update` (1 for the first). With t = update - 1, w = warmup_updates, T = total_updates, r = min_factor,
/// p = (t - w) / max(1, T - w), the warm-up is t / max(1, w) while t < w, and after it:
///   linear                     max(0, (T - t) / max(1, T - w))
///   cosine                     max(0, (1 + cos(2 pi num_cycles p)) / 2)
///   cosine_with_restarts       (1 + cos(pi frac(num_cycles p))) / 2, 0 from p = 1 on
///   polynomial                 ((peak - lr_end) (1 - p)^power + lr_end) / peak
///   constant                   1, also during the warm-up
///   constant_with_warmup       1
///   inverse_sqrt               1 / sqrt((t - w + timescale) / timescale)
///   cosine_with_min_lr         cosine squeezed into [r, 1]
///   cosine_warmup_with_min_lr  the same with t + 1 in place of t in warm-up and p; from warmup_factor if that is given
///   warmup_stable_decay        1 for stable_updates, then down to r in decay_updates; warm-up from r
/// Two schedules follow a metric instead of t: see metric_schedule.h.
struct Schedule {
  enum class Kind {
    Linear,
    Cosine,
    CosineWithRestarts,
    Polynomial,
    Constant,
    ConstantWithWarmup,
    InverseSqrt,
    CosineWithMinLr,
    CosineWarmupWithMinLr,
    WarmupStableDecay,
    ReduceOnPlateau,
    Greedy,
  };
  /// How warmup_stable_decay goes up and down, over x from 0 to 1 (up; down is mirrored):
  /// x, (1 - cos(pi x)) / 2, or 1 - sqrt(1 - x).
  enum class Shape { Linear, Cosine, OneMinusSqrt };

  Kind kind = Kind::Linear;
  int64_t warmup_updates = 0;
  int64_t total_updates = 1;
  double num_cycles = 0.5;               ///< the cosines; cosine_with_restarts: a whole number
  double peak = 1, lr_end = 0;           ///< polynomial: learning rates
  double power = 1;                      ///< polynomial
  int64_t timescale = 10'000;            ///< inverse_sqrt: updates, above 0
  double min_factor = 0;                 ///< the floor, as a share of the peak
  std::optional<double> warmup_factor = std::nullopt;  ///< cosine_warmup_with_min_lr: where the warm-up begins
  int64_t stable_updates = 0, decay_updates = 0;
  Shape warmup_shape = Shape::Linear, decay_shape = Shape::Cosine;

  /// LambdaLR semantics: the first update uses f(0). After total_updates a schedule goes on with its formula, as there.
  /// Not for the metric-driven kinds.
  double factor(int64_t update) const;
  bool follows_metric() const { return kind == Kind::ReduceOnPlateau || kind == Kind::Greedy; }
};

/// Throws Error{Usage} naming the known ones.
Schedule::Kind schedule_kind_from_name(const std::string& name);

/// `warmup_steps` of the command line: >= 1 is a number of updates (cut to an integer), below 1 a share of the total,
/// rounded up. Throws Error{Usage} for a negative number or NaN.
int64_t warmup_updates(double warmup_steps, int64_t total_updates);

/// The schedule that --lr_scheduler_type, --lr_scheduler_kwargs and --warmup_steps ask for.
/// Throws Error{Usage}: unknown name; an argument that is unknown (with the nearest known one), missing or out of range.
/// The arguments of the metric-driven kinds are read by metric_schedule.h.
Schedule make_schedule(const OptimOptions& options, int64_t total_updates);

}  // namespace lockstep::optim
