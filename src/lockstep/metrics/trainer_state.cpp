#include "lockstep/metrics/trainer_state.h"

#include "lockstep/base/error.h"

#include <cmath>

namespace lockstep::metrics {
namespace {

constexpr size_t kLongestShown = 100;

/// repr() of a str.
std::string python_text(std::string_view text) {
  const bool double_quotes = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + quote;
}

struct ConsoleValue {
  std::string operator()(std::monostate) const { return "None"; }
  std::string operator()(bool value) const { return value ? "True" : "False"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return python_text(console_number(value)); }
  std::string operator()(const std::string& value) const {
    if (value.size() <= kLongestShown) return python_text(value);
    return python_text(fmt::format("<{} characters>", value.size()));
  }
  std::string operator()(const JsonText& value) const { return value.text; }
};

}  // namespace

std::string best_metric_key(std::string_view metric_for_best_model) {
  if (metric_for_best_model.starts_with("eval_")) return std::string(metric_for_best_model);
  return fmt::format("eval_{}", metric_for_best_model);
}

bool depends_on_clock(std::string_view metric) {
  if (metric.ends_with("_mm")) metric.remove_suffix(3);
  return metric == "runtime" || metric.ends_with("_runtime") || metric.ends_with("_per_second");
}

bool greater_is_better(std::string_view metric_for_best_model, std::optional<bool> given) {
  return given.value_or(!metric_for_best_model.ends_with("loss"));
}

double metric_for_best(std::span<const std::pair<std::string, double>> metrics,
                       std::string_view metric_for_best_model) {
  const std::string key = best_metric_key(metric_for_best_model);
  std::string names;
  for (const auto& [name, value] : metrics) {
    if (name == key) return value;
    if (!depends_on_clock(name)) names += (names.empty() ? "" : ", ") + name;
  }
  throw Error::usage("metric_for_best_model = {}: the evaluation has no {}. Use one of {}.", metric_for_best_model, key,
                     names);
}

bool is_better(double value, std::optional<double> best, bool greater_is_better) {
  if (std::isnan(value)) return false;
  if (!best) return true;
  return greater_is_better ? value > *best : value < *best;
}

bool note_metric(TrainerState& state, double value, bool greater_is_better) {
  if (!is_better(value, state.best_metric, greater_is_better)) return false;
  state.best_metric = value;
  state.best_global_step = state.global_step;
  return true;
}

bool note_evaluation(EarlyStopping& stopping, double value, std::optional<double> best_before,
                     bool greater_is_better) {
  const bool improved = !best_before || (is_better(value, best_before, greater_is_better) &&
                                         std::abs(value - *best_before) > stopping.threshold);
  stopping.counter = improved ? 0 : stopping.counter + 1;
  return stopping.is_spent();
}

std::string console_number(double value) { return fmt::format("{:.4g}", value); }

std::string console_entry(const LogEntry& entry) {
  std::string line = "{";
  for (const auto& [key, value] : entry) {
    if (key == "total_flos") continue;
    if (line.size() > 1) line += ", ";
    line += python_text(key) + ": " + std::visit(ConsoleValue{}, value);
  }
  return line + "}";
}

}  // namespace lockstep::metrics
