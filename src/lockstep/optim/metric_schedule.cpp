#include "lockstep/optim/metric_schedule.h"

#include "lockstep/base/error.h"
#include "lockstep/optim/arguments.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace lockstep::optim {
namespace {

GreedyArguments rules_of(Schedule::Kind kind, const std::optional<std::string>& kwargs) {
  GreedyArguments greedy;
  if (kind == Schedule::Kind::Greedy) {
    if (kwargs) read_json_arguments(*kwargs, options::collect(greedy), {"lr_scheduler_kwargs", "greedy"});
    return greedy;
  }
  PlateauArguments plateau;
  if (kwargs) read_json_arguments(*kwargs, options::collect(plateau), {"lr_scheduler_kwargs", "reduce_lr_on_plateau"});
  greedy.mode = plateau.mode;
  greedy.factor = plateau.factor;
  greedy.patience = plateau.patience;
  greedy.threshold = plateau.threshold;
  greedy.threshold_mode = plateau.threshold_mode;
  greedy.cooldown = plateau.cooldown;
  greedy.min_lr = plateau.min_lr;
  greedy.eps = plateau.eps;
  return greedy;
}

}  // namespace

MetricSchedule::MetricSchedule(Schedule::Kind kind, const std::optional<std::string>& kwargs, double peak_learning_rate)
    : kind_(kind), rules_(rules_of(kind, kwargs)), peak_(peak_learning_rate) {
  LS_CHECK(kind == Schedule::Kind::ReduceOnPlateau || kind == Schedule::Kind::Greedy, "not a metric-driven schedule");
  state_.learning_rate = peak_;
  state_.resets_left = rules_.reset_start;
}

void MetricSchedule::step(double metric) {
  if (kind_ == Schedule::Kind::Greedy) {
    step_greedy(smoothed(metric));
  } else {
    step_plateau(metric);
  }
}

void MetricSchedule::step_plateau(double metric) {
  if (is_better(metric)) {
    state_.best = metric;
    state_.num_bad = 0;
  } else {
    ++state_.num_bad;
  }
  if (state_.cooldown_left > 0) {
    --state_.cooldown_left;
    state_.num_bad = 0;
  }
  if (state_.num_bad > rules_.patience) {
    reduce();
    state_.cooldown_left = rules_.cooldown;
    state_.num_bad = 0;
  }
}

void MetricSchedule::step_greedy(double metric) {
  int64_t& pause = state_.cooldown_left > 0 ? state_.cooldown_left : state_.warmup_left;
  if (pause > 0) {
    --pause;
    state_.num_bad = state_.num_good = 0;
    return;
  }
  if (is_better(metric)) {
    state_.best = metric;
    state_.num_bad = 0;
    ++state_.num_good;
  } else {
    ++state_.num_bad;
    state_.num_good = 0;
  }
  if (state_.num_good > rules_.patience) {
    increase();
    state_.warmup_left = rules_.warmup;
    state_.num_good = 0;
  } else if (state_.num_bad > rules_.patience) {
    reduce();
    state_.cooldown_left = rules_.cooldown;
    state_.num_bad = 0;
  }
}

bool MetricSchedule::is_better(double metric) const {
  const bool smaller = rules_.mode == "min";
  if (!state_.best) return smaller ? metric < std::numeric_limits<double>::infinity()
                                   : metric > -std::numeric_limits<double>::infinity();
  const double best = *state_.best;
  const double share = smaller ? 1.0 - rules_.threshold : 1.0 + rules_.threshold;
  const double step = smaller ? -rules_.threshold : rules_.threshold;
  const double bar = rules_.threshold_mode == "rel" ? best * share : best + step;
  return smaller ? metric < bar : metric > bar;
}

double MetricSchedule::smoothed(double metric) {
  if (!rules_.smooth) return metric;
  state_.window.push_back(metric);
  state_.window_sum += metric;
  if (static_cast<int64_t>(state_.window.size()) > rules_.window_size) {
    state_.window_sum -= state_.window.front();
    state_.window.pop_front();
  }
  return state_.window_sum / static_cast<double>(state_.window.size());
}

void MetricSchedule::reduce() {
  const double lower = std::max(state_.learning_rate * rules_.factor, rules_.min_lr);
  if (state_.learning_rate - lower > rules_.eps) state_.learning_rate = lower;
  if (kind_ == Schedule::Kind::Greedy && state_.learning_rate <= rules_.min_lr && --state_.resets_left <= 0) {
    reset_greedy();
  }
}

void MetricSchedule::increase() {
  const double higher = std::min(state_.learning_rate / rules_.factor, rules_.max_lr);
  if (higher - state_.learning_rate > rules_.eps) state_.learning_rate = higher;
  state_.resets_left = rules_.reset_start;
}

void MetricSchedule::reset_greedy() {
  state_ = {};
  state_.learning_rate = peak_;
  state_.resets_left = rules_.reset_start;
}

std::string MetricSchedule::state() const {
  nlohmann::ordered_json json;
  json["learning_rate"] = state_.learning_rate;
  json["best"] = state_.best ? nlohmann::ordered_json(*state_.best) : nlohmann::ordered_json(nullptr);
  json["num_bad"] = state_.num_bad;
  json["num_good"] = state_.num_good;
  json["cooldown_left"] = state_.cooldown_left;
  json["warmup_left"] = state_.warmup_left;
  json["resets_left"] = state_.resets_left;
  json["window"] = state_.window;
  json["window_sum"] = state_.window_sum;
  return json.dump();
}

void MetricSchedule::restore(std::string_view json, std::string_view where) {
  try {
    const auto kept = nlohmann::json::parse(json);
    State state;
    kept.at("learning_rate").get_to(state.learning_rate);
    if (!kept.at("best").is_null()) state.best = kept.at("best").get<double>();
    kept.at("num_bad").get_to(state.num_bad);
    kept.at("num_good").get_to(state.num_good);
    kept.at("cooldown_left").get_to(state.cooldown_left);
    kept.at("warmup_left").get_to(state.warmup_left);
    kept.at("resets_left").get_to(state.resets_left);
    kept.at("window").get_to(state.window);
    kept.at("window_sum").get_to(state.window_sum);
    state_ = std::move(state);
  } catch (const nlohmann::json::exception& error) {
    throw Error::data("{}: the state of the learning rate cannot be read: {}. Resume from another checkpoint.", where,
                      error.what());
  }
}

}  // namespace lockstep::optim
