#pragma once

#include <cstdint>
#include <string>

namespace lockstep::optim {

/// Hugging Face's schedules (transformers/optimization.py): the factor on the peak learning rate for update number
/// `update` (1 for the first; LambdaLR semantics, so the first update uses f(0)).
struct Schedule {
  enum class Kind { Linear, Cosine, Constant, ConstantWithWarmup };
  Kind kind = Kind::Linear;
  int64_t warmup_updates = 0;
  int64_t total_updates = 1;
  double num_cycles = 0.5;  ///< cosine

  /// After total_updates: 0 for linear; cosine goes on with its wave, as there.
  double factor(int64_t update) const;
};

/// Throws Error{Usage} naming the known ones.
Schedule::Kind schedule_kind_from_name(const std::string& name);

/// `warmup_steps` of the command line: >= 1 is a number of updates (cut to an integer), below 1 a share of the total,
/// rounded up. Throws Error{Usage} for a negative number or NaN.
int64_t warmup_updates(double warmup_steps, int64_t total_updates);

}  // namespace lockstep::optim
