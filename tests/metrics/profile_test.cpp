// What a profile says of spans that were made up: which row they count in, and what Chrome's format asks for.
#include "lockstep/metrics/profile_costs.h"
#include "lockstep/metrics/profile_trace.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>

namespace lockstep::metrics {
namespace {

using profile::Kind;
using profile::Span;

Span span(Kind kind, int64_t begin_us, int64_t end_us, int64_t work = 0, int32_t index = -1) {
  return {.begin_ns = 1000 * begin_us, .end_ns = 1000 * end_us, .work = work, .index = index, .kind = kind};
}

/// An update of 1 ms on two threads, its spans in the order of their ends.
RankProfile made_up() {
  RankProfile rank;
  rank.host = "a \"host\"";
  rank.origin_ns = 1000 * 90;
  rank.limits = {.flops_per_s = 2e9, .bytes_per_s = 4e9};
  rank.threads = {{span(Kind::Plan, 100, 110),
                   span(Kind::ProductForward, 200, 300, 100'000),           // 1 GFLOP/s
                   span(Kind::Norm, 300, 350, 100'000),                     // 2 GB/s
                   span(Kind::LayerForward, 150, 400, 0, 2),
                   span(Kind::ProductForward, 410, 450, 60'000),            // of the head
                   span(Kind::GradientAdd, 460, 480, 1000),
                   span(Kind::ProductWeightGradient, 450, 490, 20'000),
                   span(Kind::Head, 400, 500),
                   span(Kind::Grain, 120, 510, 0, 0),
                   span(Kind::Threads, 510, 600),
                   span(Kind::Peers, 600, 700),
                   span(Kind::Checkpoint, 700, 710),
                   span(Kind::Update, 100, 1100, 0, 3),
                   span(Kind::Evaluation, 1200, 1500)},
                  {span(Kind::Threads, 100, 900), span(Kind::StepPass, 900, 1000, 100'000), span(Kind::Threads, 1000, 1100)}};
  return rank;
}

std::map<std::string, CostRow> rows_of(const ProfileCosts& costs) {
  std::map<std::string, CostRow> rows;
  for (const CostRow& row : costs.rows()) rows.emplace(row.name, row);
  return rows;
}

TEST(ProfileCosts, EachMomentCountsOnce) {
  ProfileCosts costs;
  costs.add(made_up());
  const auto rows = rows_of(costs);
  // ms are of a thread in the mean: 2 threads.
  EXPECT_DOUBLE_EQ(rows.at("products, forward").ms, 0.05);
  EXPECT_DOUBLE_EQ(rows.at("norms").ms, 0.025);
  EXPECT_DOUBLE_EQ(rows.at("head and loss").ms, 0.05);
  EXPECT_FALSE(rows.contains("products, weight gradients + exact add"));
  EXPECT_FALSE(rows.contains("exact add of other gradients"));
  EXPECT_NEAR(rows.at("rest of the grains").ms, 0.07, 1e-12);    // 100 of the layer, 40 of the grain
  EXPECT_NEAR(rows.at("waiting for other threads").ms, 0.495, 1e-12);
  EXPECT_DOUBLE_EQ(rows.at("waiting for other ranks").ms, 0.05);
  EXPECT_DOUBLE_EQ(rows.at("waiting for a checkpoint's readers").ms, 0.005);
  double ms = 0, share = 0;
  for (const auto& [name, row] : rows) {
    ms += row.ms;
    share += row.share;
  }
  EXPECT_NEAR(ms, costs.update_ms(), 1e-9);
  EXPECT_NEAR(share, 1, 1e-12);
  EXPECT_DOUBLE_EQ(costs.update_ms(), 1);
  EXPECT_EQ(costs.first_update(), 3);
  EXPECT_EQ(costs.num_updates(), 1);
}

TEST(ProfileCosts, RatesAreOfTheTimeOfTheirRow) {
  ProfileCosts costs;
  costs.add(made_up());
  const auto rows = rows_of(costs);
  EXPECT_DOUBLE_EQ(rows.at("products, forward").rate, 1e9);
  EXPECT_DOUBLE_EQ(rows.at("products, forward").of_limit, 0.5);
  EXPECT_DOUBLE_EQ(rows.at("norms").rate, 2e9);
  EXPECT_DOUBLE_EQ(rows.at("norms").of_limit, 0.5);
  EXPECT_DOUBLE_EQ(rows.at("head and loss").rate, 0.8e9);        // 80,000 operations in 100 us; its bytes are no operations
  EXPECT_DOUBLE_EQ(rows.at("optimizer: step pass").of_limit, 0.25);
  EXPECT_EQ(rows.at("waiting for other ranks").rate, 0);
}

TEST(ProfileCosts, ThePageFitsATerminalAndNamesTheLargest) {
  ProfileCosts costs;
  RankProfile rank = made_up();
  costs.add(rank);
  rank.rank = 1;
  rank.num_lost = 4;
  costs.add(rank);
  std::string text;
  for (const std::string& line : costs.lines()) {
    EXPECT_LE(line.size(), 130U) << line;
    text += line + "\n";
  }
  EXPECT_NE(text.find("profile of update 3: 1.0 ms per update, 2 processes x 2 threads"), std::string::npos) << text;
  EXPECT_NE(text.find("largest: waiting for other threads (50%); rest of the update ("), std::string::npos) << text;
  EXPECT_NE(text.find("rank 1 thread 1 10%"), std::string::npos) << text;
  EXPECT_NE(text.find("4 spans found no room"), std::string::npos) << text;
  EXPECT_NE(text.find("evaluations 0.3 ms"), std::string::npos) << text;
}

TEST(TraceWriter, WritesChromesFormat) {
  std::string text;
  TraceWriter writer([&](std::string_view piece) { text += piece; });
  RankProfile rank = made_up();
  writer.add(rank);
  rank.rank = 1;
  rank.origin_ns = 1000 * 101;                 // begins before the common zero
  writer.add(rank);
  writer.finish("one clock", {"a line"}, 0);
  const nlohmann::json trace = nlohmann::json::parse(text);
  EXPECT_EQ(trace["otherData"]["clock"], "one clock");
  EXPECT_EQ(trace["otherData"]["table"].size(), 1U);
  std::map<std::string, int> phases;
  for (const auto& event : trace["traceEvents"]) {
    ++phases[event["ph"].get<std::string>()];
    for (const char* number : {"pid", "tid", "ts"}) EXPECT_TRUE(event[number].is_number()) << event;
    if (event["ph"] == "X") {
      EXPECT_TRUE(event["dur"].is_number() && event["name"].is_string() && event["cat"].is_string()) << event;
    }
  }
  EXPECT_EQ(phases, (std::map<std::string, int>{{"M", 6}, {"X", 34}}));
  const auto& events = trace["traceEvents"];
  const auto layer = std::find_if(events.begin(), events.end(), [](const auto& event) { return event["name"] == "layer 2, forward"; });
  ASSERT_NE(layer, events.end());
  EXPECT_EQ((*layer)["ts"], 60.0);
  EXPECT_EQ((*layer)["dur"], 250.0);
  const auto product = std::find_if(events.begin(), events.end(), [](const auto& event) { return event["name"] == "product, forward"; });
  ASSERT_NE(product, events.end());
  EXPECT_EQ((*product)["args"]["GFLOP/s"], 1.0);
  EXPECT_EQ((*product)["args"]["of limit"], 0.5);
}

TEST(TraceWriter, HandsOverInPieces) {
  size_t largest = 0, all = 0;
  TraceWriter writer([&](std::string_view piece) {
    largest = std::max(largest, piece.size());
    all += piece.size();
  });
  RankProfile rank = made_up();
  rank.threads[0].assign(50'000, span(Kind::Norm, 100, 200, 5));
  writer.add(rank);
  writer.finish("one clock", {}, 0);
  EXPECT_GT(all, size_t{4} << 20);
  EXPECT_LT(largest, (size_t{1} << 20) + 4096);
}

}  // namespace
}  // namespace lockstep::metrics
