#include "lockstep/recipes/evaluation_checks.h"

#include "lockstep/metrics/trainer_state.h"
#include "lockstep/recipes/cli_checks.h"

#include <fmt/format.h>

#include <cmath>

namespace lockstep::recipes {

using options::Origins;
using options::Problems;
using options::Words;

namespace {

/// What decides the best model, the end or the rate must be the same in every run.
void check_decisive_metric(const train::EvaluationOptions& evaluation, const Origins& origins, Problems& problems) {
  const std::string name = evaluation.metric_for_best_model.value_or("loss");
  if (!metrics::depends_on_clock(name)) return;
  problems.add(with_origin(origins, "metric_for_best_model", name) +
               ": depends on the clock, so each run would end with other bits. Name a metric of the model, as accuracy or loss.");
}

/// Below 1 a share of all updates, from 1 on a count.
void check_steps(std::string_view key, double steps, const Origins& origins, Problems& problems) {
  if (steps < 1 || steps == std::floor(steps)) return;
  problems.add(fmt::format("{}: from 1 on these are whole updates. Use {} or {}, or a share below 1.",
                           with_origin(origins, key, steps), std::floor(steps), std::ceil(steps)));
}

/// transformers' rules for load_best_model_at_end and save_strategy best (TrainingArguments.__post_init__).
void check_best_model(const EvaluationChecks& options, const Origins& origins, Problems& problems) {
  const train::EvaluationOptions& evaluation = options.evaluation;
  const train::CheckpointOptions& saving = options.checkpoints;
  const auto needs_evaluation = [&](const std::string& what) {
    problems.add(what + " needs evaluations during training. Add --eval_strategy epoch, or steps.");
  };
  if (saving.save_strategy == "best") {
    if (!options.evaluates) needs_evaluation(with_origin(origins, "save_strategy", saving.save_strategy));
    if (!evaluation.metric_for_best_model && !evaluation.load_best_model_at_end) {
      problems.add(with_origin(origins, "save_strategy", saving.save_strategy) +
                   ": what is best? Name a metric with --metric_for_best_model, as accuracy or loss.");
    }
  }
  if (!evaluation.load_best_model_at_end) return;
  const std::string flag = with_origin(origins, "load_best_model_at_end", true);
  if (!options.evaluates) {
    needs_evaluation(flag);
  } else if (saving.save_strategy != "best" && saving.save_strategy != evaluation.eval_strategy) {
    problems.add(fmt::format("{}: every evaluated model must be saved, but {} and {}. Make the two strategies the same, or "
                             "use --save_strategy best.", flag,
                             with_origin(origins, "eval_strategy", evaluation.eval_strategy),
                             with_origin(origins, "save_strategy", saving.save_strategy)));
  } else if (saving.save_strategy == "steps") {
    const double steps = evaluation.eval_steps.value_or(options.train.logging_steps);
    // Shares of all updates are rounded up later: their quotient, up to what decimal fractions lose, tells.
    const double times = saving.save_steps / steps;
    if ((saving.save_steps < 1) == (steps < 1) && std::fabs(times - std::round(times)) < 1e-9 && times > 0.5) return;
    problems.add(fmt::format("{}: save_steps = {} is no multiple of eval_steps = {}, so some evaluated models would not be "
                             "saved. Give --eval_steps {} or another divisor.", flag, saving.save_steps, steps, saving.save_steps));
  }
}

}  // namespace

void check_evaluation(const EvaluationChecks& options, const Origins& origins, Problems& problems, Words& notes) {
  const train::EvaluationOptions& evaluation = options.evaluation;
  if (evaluation.eval_steps && evaluation.eval_strategy != "steps") {
    notes.push_back(fmt::format("{} has no effect: {}.", with_origin(origins, "eval_steps", *evaluation.eval_steps),
                                with_origin(origins, "eval_strategy", evaluation.eval_strategy)));
  }
  if (options.train.logging_dir && options.train.logging_dir->empty()) {
    problems.add(with_origin(origins, "logging_dir", "''") + ": is empty. Name a folder, or leave it out.");
  }
  check_steps("logging_steps", options.train.logging_steps, origins, problems);
  check_steps("eval_steps", evaluation.eval_steps.value_or(1), origins, problems);
  check_steps("save_steps", options.checkpoints.save_steps, origins, problems);
  const std::string& schedule = options.optim.lr_scheduler_type;
  if ((schedule == "reduce_lr_on_plateau" || schedule == "greedy") && !options.evaluates) {
    problems.add(with_origin(origins, "lr_scheduler_type", schedule) +
                 ": it changes the rate at evaluations. Add --eval_strategy epoch, or steps.");
  }
  if (evaluation.early_stopping_patience && !options.evaluates) {
    problems.add(with_origin(origins, "early_stopping_patience", *evaluation.early_stopping_patience) +
                 ": it counts evaluations during training. Add --eval_strategy epoch, or steps.");
  }
  if (is_given(origins, "early_stopping_threshold") && !evaluation.early_stopping_patience) {
    notes.push_back(with_origin(origins, "early_stopping_threshold", evaluation.early_stopping_threshold) +
                    " has no effect without --early_stopping_patience.");
  }
  check_decisive_metric(evaluation, origins, problems);
  check_best_model(options, origins, problems);
}

}  // namespace lockstep::recipes
