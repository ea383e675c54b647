#include "lockstep/train/console.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>

namespace lockstep::train {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Whether a NaN has a sign says nothing.
double unsigned_nan(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

/// Of the bar: with fewer it says less than the numbers beside it.
constexpr size_t kFewestCells = 4, kMostCells = 40;

}  // namespace

WindowMeans means_of(const std::vector<UpdateMetrics>& window) {
  WindowMeans means;
  double milliseconds = 0, tokens = 0, count = 0;
  for (const UpdateMetrics& metrics : window) {
    milliseconds += metrics.step_ms;
    tokens += static_cast<double>(metrics.update_tokens);
    if (metrics.skipped) continue;
    ++count;
    means.loss += metrics.loss;
    means.entropy += metrics.entropy;
    means.mean_token_accuracy += metrics.mean_token_accuracy;
  }
  // 0 / 0 is a NaN with a sign, which would be printed.
  const auto mean = [&](double sum) { return count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN(); };
  means.loss = mean(means.loss);
  means.entropy = mean(means.entropy);
  means.mean_token_accuracy = mean(means.mean_token_accuracy);
  means.step_ms = milliseconds / static_cast<double>(std::max<size_t>(1, window.size()));
  means.tokens_per_second = milliseconds > 0 ? 1e3 * tokens / milliseconds : 0;
  return means;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  const int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60);
  return fmt::format("{:02}:{:02}", minutes, whole % 60);
}

std::string bar_text(int64_t done, int64_t total, double elapsed_seconds, const UpdateMetrics& last, int columns) {
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0;
  const double left = done > 0 ? elapsed_seconds / static_cast<double>(done) * static_cast<double>(total - done) : 0;
  const auto room = static_cast<size_t>(std::max(1, columns - 1));

  std::string head = fmt::format("{:3.0f}% ", 100 * share);
  std::string tail = fmt::format("{}/{}", done, total);
  std::vector<std::string> more = {fmt::format(" [{}<{}]", clock_text(elapsed_seconds),
                                               done > 0 ? clock_text(left) : std::string("?"))};
  if (done > 0) more.push_back(fmt::format(" loss {:.4f}", unsigned_nan(last.loss)));
  if (done > 0) more.push_back(fmt::format(" {:.0f} tokens/s", last.tokens_per_second()));
  for (const std::string& part : more) {
    if (head.size() + tail.size() + part.size() > room) break;
    tail += part;
  }
  const size_t used = head.size() + tail.size() + 3;  // two bars and a space
  if (used + kFewestCells > room) return (head + tail).substr(0, room);
  const size_t cells = std::min(room - used, kMostCells);
  const auto filled = static_cast<size_t>(share * static_cast<double>(cells));
  return fmt::format("{}|{}{}| {}", head, std::string(filled, '#'), std::string(cells - filled, ' '), tail);
}

std::string log_line(const UpdateMetrics& last, const WindowMeans& means, int64_t total) {
  const int width = static_cast<int>(std::to_string(total).size());
  std::string line = fmt::format("step {:>{}}/{}  loss {:.4f}  grad_norm {:.4g}  lr {:.3e}", last.update, width, total,
                                 unsigned_nan(means.loss), unsigned_nan(last.grad_norm), last.learning_rate);
  if (last.has_entropy) line += fmt::format("  entropy {:.4f}", unsigned_nan(means.entropy));
  if (last.has_accuracy) line += fmt::format("  accuracy {:.4f}", unsigned_nan(means.mean_token_accuracy));
  line += fmt::format("  tokens {}  epoch {:.4f}  {:.0f} tokens/s", last.num_tokens, last.epoch, means.tokens_per_second);
  if (last.skipped) line += "  SKIPPED (not finite)";
  return line;
}

Console::Console(ConsoleOptions options) : options_(options) {}

Console::~Console() { clear(); }

void Console::start() {
  started_ = now_seconds();
  if (!options_.bar) return;
  fmt::print(stderr, "\r{}", bar_text(0, options_.total_updates, 0, {}, options_.columns));
  std::fflush(stderr);
  bar_drawn_ = true;
}

void Console::update(const UpdateMetrics& metrics) {
  window_.push_back(metrics);
  const bool due = metrics.update % std::max<int64_t>(1, options_.logging_steps) == 0 ||
                   metrics.update == options_.total_updates || (options_.log_first && metrics.update == 1);
  if (options_.log_steps && (due || metrics.skipped)) {
    line(log_line(metrics, means_of(window_), options_.total_updates));
    window_.clear();
  }
  if (options_.bar) {
    clear();
    fmt::print(stderr, "\r{}", bar_text(metrics.update, options_.total_updates, now_seconds() - started_, metrics,
                                        options_.columns));
    std::fflush(stderr);
    bar_drawn_ = true;
  }
}

void Console::line(const std::string& text) {
  clear();
  fmt::print(stderr, "{}\n", text);
  std::fflush(stderr);
}

void Console::clear() {
  if (!bar_drawn_) return;
  fmt::print(stderr, "\r\033[K");
  bar_drawn_ = false;
}

}  // namespace lockstep::train
