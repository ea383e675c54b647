#pragma once

#include "lockstep/options/field.h"
#include "lockstep/optim/schedule.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::optim {

/// --lr_scheduler_kwargs of reduce_lr_on_plateau; names and defaults of torch.optim.lr_scheduler.ReduceLROnPlateau.
struct PlateauArguments {
  std::string mode = "min";        ///< min: a smaller metric is better. Not taken from --greater_is_better, as there
  double factor = 0.1;
  int64_t patience = 10;           ///< evaluations without a better one that are borne
  double threshold = 1e-4;
  std::string threshold_mode = "rel";
  int64_t cooldown = 0;            ///< evaluations after a reduction that do not count
  double min_lr = 0;
  double eps = 1e-8;               ///< a smaller change of the learning rate is left out

  template <class V>
  void visit(V& v) {
    v("mode", mode, "Whether a smaller or a larger metric is better.").choices({"min", "max"});
    v("factor", factor, "What the learning rate is multiplied with.").above(0).below(1);
    v("patience", patience, "Evaluations without improvement that are borne.").at_least(0);
    v("threshold", threshold, "How much better counts as better.").at_least(0);
    v("threshold_mode", threshold_mode, "Whether the threshold is a share of the best.").choices({"rel", "abs"});
    v("cooldown", cooldown, "Evaluations after a reduction that do not count.").at_least(0);
    v("min_lr", min_lr, "Floor of the learning rate.").at_least(0);
    v("eps", eps, "A smaller change is left out.").at_least(0);
  }
};

/// --lr_scheduler_kwargs of greedy; names and defaults of transformers' GreedyLR. Its min_lr of 1e-3 lies above usual
/// peaks of fine-tuning: then nothing is ever reduced, as there.
struct GreedyArguments {
  std::string mode = "min";
  double factor = 0.95;
  int64_t patience = 10;
  double threshold = 1e-6;
  std::string threshold_mode = "abs";
  int64_t cooldown = 0;            ///< evaluations after a reduction that do not count
  int64_t warmup = 0;              ///< evaluations after an increase that do not count
  double min_lr = 1e-3, max_lr = 1;
  double eps = 1e-8;
  bool verbose = false;            ///< accepted; a change of the learning rate is in the metrics anyway
  bool smooth = false;             ///< compares the mean of the last window_size metrics
  int64_t window_size = 50;
  int64_t reset_start = 500;       ///< reductions at min_lr until everything begins anew

  template <class V>
  void visit(V& v) {
    v("mode", mode, "Whether a smaller or a larger metric is better.").choices({"min", "max"});
    v("factor", factor, "What the learning rate is multiplied with or divided by.").above(0).below(1);
    v("patience", patience, "Evaluations of one kind that are borne.").at_least(0);
    v("threshold", threshold, "How much better counts as better.").at_least(0);
    v("threshold_mode", threshold_mode, "Whether the threshold is a share of the best.").choices({"rel", "abs"});
    v("cooldown", cooldown, "Evaluations after a reduction that do not count.").at_least(0);
    v("warmup", warmup, "Evaluations after an increase that do not count.").at_least(0);
    v("min_lr", min_lr, "Floor of the learning rate.").at_least(0);
    v("max_lr", max_lr, "Ceiling of the learning rate.").at_least(0);
    v("eps", eps, "A smaller change is left out.").at_least(0);
    v("verbose", verbose, "Has no effect: the learning rate is in the metrics.");
    v("smooth", smooth, "Compares a running mean.");
    v("window_size", window_size, "Metrics in the running mean.").at_least(1);
    v("reset_start", reset_start, "Reductions at the floor until a reset.").at_least(0);
  }
};

/// A learning rate that changes at evaluations: reduce_lr_on_plateau (torch) and greedy (transformers' GreedyLR, after
/// "GreedyLR: A Novel Adaptive Learning Rate Scheduler", 2025). The same calls give the same rates on every rank.
/// Not thread-safe.
class MetricSchedule {
 public:
  /// `kind` must follow a metric. Throws Error{Usage} for arguments as make_schedule() does.
  MetricSchedule(Schedule::Kind kind, const std::optional<std::string>& kwargs, double peak_learning_rate);

  /// Of the next update.
  double learning_rate() const { return state_.learning_rate; }
  /// After an evaluation. A NaN is never better.
  void step(double metric);

  /// What a checkpoint keeps, as a JSON object; restore() is the inverse. Throws Error{Data} for another text, naming
  /// `where`.
  std::string state() const;
  void restore(std::string_view json, std::string_view where);

 private:
  struct State {
    double learning_rate = 0;
    std::optional<double> best;    ///< none: everything is better
    int64_t num_bad = 0, num_good = 0;
    int64_t cooldown_left = 0, warmup_left = 0;
    int64_t resets_left = 0;
    std::deque<double> window;
    double window_sum = 0;
  };

  void step_plateau(double metric);
  void step_greedy(double metric);
  bool is_better(double metric) const;
  double smoothed(double metric);
  void reduce();
  void increase();
  void reset_greedy();

  Schedule::Kind kind_;
  GreedyArguments rules_;          ///< of both kinds; plateau leaves the rest at its defaults
  double peak_;
  State state_;
};

}  // namespace lockstep::optim
