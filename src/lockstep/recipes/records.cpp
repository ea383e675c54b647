#include "lockstep/recipes/records.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::recipes {

std::optional<std::string> best_metric_name(const train::EvaluationOptions& options, bool is_needed) {
  if (options.metric_for_best_model) return options.metric_for_best_model;
  is_needed |= options.load_best_model_at_end || options.early_stopping_patience.has_value();
  return is_needed ? std::optional<std::string>("loss") : std::nullopt;
}

std::optional<metrics::EarlyStopping> continued_stopping(const std::optional<metrics::EarlyStopping>& wanted,
                                                         const metrics::TrainerState& state) {
  std::optional<metrics::EarlyStopping> stopping = wanted;
  if (stopping && state.early_stopping) stopping->counter = state.early_stopping->counter;
  return stopping;
}

Records::Records(RecordsOptions options, metrics::TrainerState state)
    : options_(std::move(options)), state_(std::move(state)) {
  state_.early_stopping = continued_stopping(options_.early_stopping, state_);
  if (!options_.tensorboard) return;
  const bool resumed = state_.global_step > 0;
  events_.emplace(*options_.tensorboard, resumed ? std::optional(state_.global_step) : std::nullopt);
  events_->text("args", options_.args_json);
  events_->text("model_config", options_.model_config_json);
}

void Records::on_train_begin(const train::LoopState& /*state*/, train::LoopControl& control) {
  if (stopped_early()) control.should_training_stop = true;
}

void Records::on_step_end(const train::LoopState& state, train::LoopControl& /*control*/) {
  if (state.last.skipped) return;
  window_loss_ += state.last.loss;
  ++window_updates_;
}

void Records::on_log(const train::LoopState& state, train::LoopControl& /*control*/) {
  const double updates = window_updates_ > 0 ? static_cast<double>(window_updates_) : std::nan("");
  add(state.update, state.epoch,
      {{"loss", window_loss_ / updates}, {"grad_norm", state.last.grad_norm}, {"learning_rate", state.last.learning_rate}});
  window_loss_ = 0;
  window_updates_ = 0;
}

void Records::on_evaluate(const train::LoopState& state, train::LoopControl& control) {
  add(state.update, state.epoch, state.last_evaluation);
  if (!options_.metric_for_best_model) return;
  const std::string& name = *options_.metric_for_best_model;
  const double value = metrics::metric_for_best(state.last_evaluation, name);
  const bool greater = metrics::greater_is_better(name, options_.greater_is_better);
  const std::optional<double> best_before = state_.best_metric;
  state_.global_step = state.update;
  const bool is_best = metrics::note_metric(state_, value, greater);
  if (is_best) state_.best_model_checkpoint.reset();
  if (is_best && options_.save_best) control.should_save = true;
  if (state_.early_stopping && metrics::note_evaluation(*state_.early_stopping, value, best_before, greater)) {
    control.should_training_stop = true;
  }
}

metrics::TrainerState Records::at(const train::LoopState& state) const {
  metrics::TrainerState now = state_;
  now.global_step = state.update;
  now.epoch = state.epoch;
  now.max_steps = state.total_updates;
  const int64_t per_epoch = std::max<int64_t>(state.updates_per_epoch, 1);
  now.num_train_epochs = (state.total_updates + per_epoch - 1) / per_epoch;
  now.logging_steps = options_.flow.logging_steps;
  now.eval_steps = options_.flow.eval_steps;
  now.save_steps = options_.flow.save_steps;
  now.num_input_tokens_seen = state.last.num_tokens;
  return now;
}

bool Records::has_evaluation(int64_t update) const {
  const auto is_it = [&](const metrics::LogEntry& entry) {
    bool at_update = false, evaluates = false;
    for (const auto& [name, value] : entry) {
      at_update |= name == "step" && value == metrics::LogValue(update);
      evaluates |= name.starts_with("eval_");
    }
    return at_update && evaluates;
  };
  return std::any_of(state_.log_history.begin(), state_.log_history.end(), is_it);
}

void Records::append(const train::LoopState& state, const train::NamedMetrics& values) {
  add(state.update, state.epoch, values);
}

void Records::add(int64_t update, double epoch, train::NamedMetrics values) {
  metrics::LogEntry entry;
  for (const auto& [name, value] : values) entry.emplace_back(name, value);
  entry.emplace_back("epoch", epoch);
  entry.emplace_back("step", update);
  state_.log_history.push_back(std::move(entry));
  values.emplace_back("epoch", epoch);
  if (events_) events_->scalars(update, values);
}

namespace {

/// "eval_f1_mm": of prefix "eval_", name "f1" and suffix "_mm" (mnli's second split).
struct NameParts {
  explicit NameParts(const std::string& whole) : prefix(whole.substr(0, whole.find('_') + 1)), name(whole.substr(prefix.size())) {
    if (!name.ends_with("_mm")) return;
    suffix = "_mm";
    name.erase(name.size() - suffix.size());
  }
  std::string with(std::string_view other) const { return fmt::format("{}{}{}", prefix, other, suffix); }

  std::string prefix, name, suffix;
};

const double* find_metric(const train::NamedMetrics& metrics, const std::string& name) {
  const auto found = std::find_if(metrics.begin(), metrics.end(), [&](const auto& metric) { return metric.first == name; });
  return found == metrics.end() ? nullptr : &found->second;
}

bool is_time(const std::string& name) { return name == "runtime" || name.ends_with("_per_second"); }

/// Another metric that says it.
bool is_said_by_another(const NameParts& parts, double value, const train::NamedMetrics& metrics) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kTwins = {
      {{"log_loss", "loss"}, {"mse", "loss"}, {"f1_micro", "accuracy"}, {"f1_macro", "f1"}}};
  for (const auto& [name, other] : kTwins) {
    const double* twin = parts.name == name ? find_metric(metrics, parts.with(other)) : nullptr;
    if (twin != nullptr && fmt::format("{:.4g}", *twin) == fmt::format("{:.4g}", value)) return true;
  }
  constexpr std::array<std::string_view, 5> kBesideF1 = {"precision", "recall", "f1_macro", "f1_micro", "f1_weighted"};
  return find_metric(metrics, parts.with("f1")) != nullptr &&
         std::find(kBesideF1.begin(), kBesideF1.end(), parts.name) != kBesideF1.end();
}

}  // namespace

train::NamedMetrics for_console(const train::NamedMetrics& metrics, const ConsoleMetrics& wish) {
  train::NamedMetrics shown;
  for (const auto& metric : metrics) {
    const NameParts parts(metric.first);
    if (is_time(parts.name)) continue;
    const bool is_asked = wish.all || metric.first == wish.always || parts.name + parts.suffix == wish.always;
    if (is_asked || !is_said_by_another(parts, metric.second, metrics)) shown.push_back(metric);
  }
  return shown;
}

std::string metrics_line(const train::NamedMetrics& metrics, const ConsoleMetrics& wish) {
  std::string line;
  for (const auto& [name, value] : for_console(metrics, wish)) {
    if (std::isnan(value)) {
      line += fmt::format("{}{} nan", line.empty() ? "" : "  ", name);
      continue;
    }
    const bool is_count = value == std::floor(value) && std::abs(value) >= 1e4 && std::abs(value) < 1e15;
    line += fmt::format("{}{} {}", line.empty() ? "" : "  ", name,
                        is_count ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value));
  }
  return line;
}

std::string metrics_json(const train::NamedMetrics& metrics) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const auto& [name, value] : metrics) {
    json[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  }
  return json.dump(4) + "\n";
}

}  // namespace lockstep::recipes
