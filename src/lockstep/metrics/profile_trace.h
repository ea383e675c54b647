#pragma once

#include "lockstep/metrics/profile_costs.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::metrics {

/// Writes profiles in Chrome's trace event format, which ui.perfetto.dev and chrome://tracing show: one object with
/// traceEvents, of complete events (ph X) and names (ph M); pid is the rank, tid the thread, ts and dur are microseconds.
/// Hands over text in pieces of about a mebibyte.
class TraceWriter {
 public:
  explicit TraceWriter(std::function<void(std::string_view)> write);
  void add(const RankProfile& rank);
  /// `clock`: how the ranks' times were brought together. `table`: as shown on the terminal.
  void finish(const std::string& clock, const std::vector<std::string>& table, int64_t num_lost);

 private:
  void begin_event();
  void add_span(const RankProfile& rank, size_t thread, const profile::Span& span);
  void hand_over();

  std::function<void(std::string_view)> write_;
  std::string text_;
  bool first_ = true;
};

}  // namespace lockstep::metrics
