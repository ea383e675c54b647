#include "lockstep/metrics/profile_trace.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <iterator>
#include <utility>

namespace lockstep::metrics {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 20;

/// A number of JSON: microseconds to the nanosecond.
std::string micros(int64_t ns) { return fmt::format("{}{}.{:03}", ns < 0 ? "-" : "", std::abs(ns) / 1000, std::abs(ns) % 1000); }

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

TraceWriter::TraceWriter(std::function<void(std::string_view)> write) : write_(std::move(write)) {
  text_ = "{\"traceEvents\":[";
}

void TraceWriter::begin_event() {
  if (text_.size() >= kPieceBytes) hand_over();
  text_ += first_ ? "\n" : ",\n";
  first_ = false;
}

void TraceWriter::hand_over() {
  write_(text_);
  text_.clear();
}

void TraceWriter::add(const RankProfile& rank) {
  begin_event();
  fmt::format_to(std::back_inserter(text_), R"({{"name":"process_name","ph":"M","ts":0,"pid":{},"tid":0,"args":{{"name":{}}}}})",
                 rank.rank, json_text(fmt::format("rank {} on {}", rank.rank, rank.host)));
  for (size_t thread = 0; thread < rank.threads.size(); ++thread) {
    begin_event();
    fmt::format_to(std::back_inserter(text_),
                   R"({{"name":"thread_name","ph":"M","ts":0,"pid":{},"tid":{},"args":{{"name":"thread {}"}}}})", rank.rank, thread,
                   thread);
    for (const profile::Span& span : rank.threads[thread]) add_span(rank, thread, span);
  }
}

void TraceWriter::add_span(const RankProfile& rank, size_t thread, const profile::Span& span) {
  begin_event();
  const KindFacts& facts = facts_of(span.kind);
  const int64_t ns = span.end_ns - span.begin_ns;
  fmt::format_to(std::back_inserter(text_), R"({{"name":"{}","cat":"{}","ph":"X","ts":{},"dur":{},"pid":{},"tid":{})", name_of(span),
                 facts.category, micros(span.begin_ns - rank.origin_ns), micros(ns), rank.rank, thread);
  if (span.work > 0 && ns > 0) {
    const double rate = static_cast<double>(span.work) / static_cast<double>(ns);  // per nanosecond: G per second
    const bool flops = facts.unit == WorkUnit::Flops;
    const double limit = 1e-9 * (flops ? rank.limits.flops_per_s : rank.limits.bytes_per_s);
    fmt::format_to(std::back_inserter(text_), R"(,"args":{{"{}":{},"{}":{:.2f})", flops ? "flop" : "bytes", span.work,
                   flops ? "GFLOP/s" : "GB/s", rate);
    if (limit > 0 && facts.category == "compute") {
      fmt::format_to(std::back_inserter(text_), R"(,"of limit":{:.3f})", rate / limit);
    }
    text_ += "}";
  }
  text_ += "}";
}

void TraceWriter::finish(const std::string& clock, const std::vector<std::string>& table, int64_t num_lost) {
  const nlohmann::ordered_json other = {{"made by", "lockstep --profile"}, {"clock", clock}, {"lost spans", num_lost}, {"table", table}};
  text_ += "\n],\"displayTimeUnit\":\"ms\",\"otherData\":" +
           other.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "}\n";
  hand_over();
}

}  // namespace lockstep::metrics
