#pragma once

#include "lockstep/train/metrics.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::train {

struct ConsoleOptions {
  int64_t total_updates = 0;
  int64_t logging_steps = 10;
  bool log_first = false;
  bool log_steps = true;    ///< logging_strategy no: only the bar
  bool bar = false;         ///< a terminal: redraw one line
  int columns = 80;
};

/// The mean over a logging window, as trl prints it; entropy and accuracy weighted by tokens over each update. Updates
/// that were skipped count for time and tokens alone; if all were, the means are NaN.
struct WindowMeans {
  double loss = 0, entropy = 0, mean_token_accuracy = 0, tokens_per_second = 0, step_ms = 0;
};
WindowMeans means_of(const std::vector<UpdateMetrics>& window);

/// "1:02:03" or "02:03".
std::string clock_text(double seconds);
/// The bar for `done` of `total`: share, time, time left, rate, loss; shorter than `columns`, so that no terminal wraps
/// it. What does not fit is left out, the least important part first.
std::string bar_text(int64_t done, int64_t total, double elapsed_seconds, const UpdateMetrics& last, int columns);
/// One logged line.
std::string log_line(const UpdateMetrics& last, const WindowMeans& means, int64_t total);

/// What the user sees of a run; world rank 0 has one. Writes to stderr. Not thread-safe.
class Console {
 public:
  explicit Console(ConsoleOptions options);
  ~Console();
  void start();
  void update(const UpdateMetrics& metrics);
  /// Removes the bar so that other text may follow.
  void clear();

 private:
  void line(const std::string& text);
  ConsoleOptions options_;
  std::vector<UpdateMetrics> window_;
  double started_ = 0;
  bool bar_drawn_ = false;
};

}  // namespace lockstep::train
