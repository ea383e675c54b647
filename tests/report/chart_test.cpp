#include "lockstep/report/chart.h"

#include "report/html_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <regex>

namespace lockstep::report {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::IsEmpty;

Points falling(size_t count) {
  Points points;
  for (size_t i = 1; i <= count; ++i) points.push_back({static_cast<double>(i), 3 / std::sqrt(static_cast<double>(i))});
  return points;
}

TEST(Ticks, AreRoundAndInside) {
  EXPECT_THAT(ticks(0, 100, 5), ElementsAre(0, 20, 40, 60, 80, 100));
  EXPECT_THAT(ticks(1.1, 2.9, 5), ElementsAre(DoubleNear(1.5, 1e-12), DoubleNear(2, 1e-12), DoubleNear(2.5, 1e-12)));
  EXPECT_THAT(ticks(-3e-5, 3e-5, 5).size(), 3U);
  EXPECT_THAT(ticks(1, 1, 5), IsEmpty());
  for (double high = 1e-9; high < 1e12; high *= 1.7) {
    const auto found = ticks(high / 3, high, 5);
    EXPECT_GE(found.size(), 2U) << high;
    EXPECT_LE(found.size(), 6U) << high;
    for (const double value : found) EXPECT_TRUE(value >= high / 3 * (1 - 1e-15) && value <= high) << value << " of " << high;
  }
}

TEST(TickText, IsShortAndTellsNeighboursApart) {
  EXPECT_EQ(tick_text(0.30000000000000004, 0.1), "0.3");
  EXPECT_EQ(tick_text(2e-5, 1e-5), "2e-05");
  EXPECT_EQ(tick_text(1e-20, 0.5), "0");
  EXPECT_EQ(tick_text(1500, 500), "1500");
  EXPECT_EQ(tick_text(15000, 5000), "15k");
  EXPECT_EQ(tick_text(-2500000, 500000), "-2.5M");
  EXPECT_EQ(tick_text(2.30141, 1e-5), "2.30141");
  EXPECT_NE(tick_text(123456, 1), tick_text(123457, 1));
}

TEST(Columns, AreMeansInABand) {
  EXPECT_EQ(columns_of(falling(kMostColumns)).size(), kMostColumns);
  Points points;
  for (int i = 0; i < 1000; ++i) points.push_back({static_cast<double>(i), i % 2 == 0 ? 1.0 : 3.0});
  const auto columns = columns_of(points);
  ASSERT_EQ(columns.size(), kMostColumns);
  for (const Column& column : columns) {
    EXPECT_EQ(column.low, 1);
    EXPECT_EQ(column.high, 3);
    EXPECT_NEAR(column.mean, 2, 0.21);  // of 4 or 5 values
  }
  EXPECT_GT(columns.back().step, 995);
}

TEST(Chart, IsWellFormedAndInsideItsBox) {
  for (const size_t count : {size_t{1}, size_t{2}, size_t{30}, size_t{31}, size_t{5000}}) {
    const std::string svg = chart_svg("a \"label\" <b>", {{0, falling(count)}, {9, falling(count / 2 + 1)}});
    const HtmlFound found = read_html(svg);
    EXPECT_THAT(found.complaints, IsEmpty());
    EXPECT_LT(svg.size(), 60000U) << count << " points";
    const std::regex number("[ML](-?[0-9.]+) (-?[0-9.]+)");
    for (std::sregex_iterator at(svg.begin(), svg.end(), number), end; at != end; ++at) {
      EXPECT_TRUE(std::stod((*at)[1]) >= 0 && std::stod((*at)[1]) <= 400) << at->str();
      EXPECT_TRUE(std::stod((*at)[2]) >= 0 && std::stod((*at)[2]) <= 220) << at->str();
    }
    EXPECT_EQ(svg.find("nan"), svg.npos);
    EXPECT_EQ(svg.find("inf"), svg.npos);
  }
}

TEST(Chart, DrawsWhatIsThere) {
  EXPECT_EQ(chart_svg("none", {}), "");
  EXPECT_EQ(chart_svg("none", {{0, {}}}), "");
  const auto elements = [](size_t count) { return read_html(chart_svg("x", {{0, falling(count)}})).elements; };
  EXPECT_EQ(elements(10).at("circle"), 10);
  EXPECT_EQ(elements(1).at("circle"), 1);
  EXPECT_EQ(elements(60).count("circle"), 0U) << "they would touch";
  EXPECT_NE(chart_svg("x", {{0, falling(1000)}}).find("class=\"band\""), std::string::npos);
  EXPECT_EQ(chart_svg("x", {{0, falling(100)}}).find("class=\"band\""), std::string::npos);
}

TEST(Chart, ReadoutsShowTheUpdateAndEachRunsValue) {
  const std::string svg = chart_svg("x", {{0, {{10, 1.5}, {20, 2.5}}}, {1, {{10, 4}, {20, 8}}}});
  const HtmlFound found = read_html(svg);
  for (const char* text : {"update 10", "update 20", "1.5", "2.5"}) {
    EXPECT_NE(found.text.find(text), std::string::npos) << text;
  }
  EXPECT_NE(svg.find("class=\"curve r1 c1\""), std::string::npos);
}

TEST(Chart, ConstantAndHugeCurvesHaveAFrame) {
  for (const double value : {0.0, 5.0, -1e300, 1e-300}) {
    const std::string svg = chart_svg("x", {{0, {{3, value}, {4, value}}}});
    EXPECT_NE(svg.find("class=\"line\""), std::string::npos) << value;
    EXPECT_EQ(svg.find("nan"), std::string::npos) << value;
  }
}

}  // namespace
}  // namespace lockstep::report
