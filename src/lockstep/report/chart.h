#pragma once

#include "lockstep/report/run_files.h"

#include <string>
#include <vector>

namespace lockstep::report {

/// One curve. Its colour is that of the run.
struct Curve {
  size_t run = 0;  ///< index; class r<run> of its elements, so that a page can hide it
  Points points;
};

/// A chart over updates as inline SVG, without script: axes with round numbers, a curve per run, and for each of some 40
/// places a readout that appears when it is pointed at. A curve with more points than the chart has columns is drawn as
/// the mean of each column's updates over a pale band from the smallest to the largest of them.
/// `label`: what it shows, for those who cannot see it. Empty if there is no point at all.
std::string chart_svg(const std::string& label, const std::vector<Curve>& curves);

/// Round numbers (1, 2 or 5 times a power of ten apart) inside [low, high], at most `most` of them.
std::vector<double> ticks(double low, double high, int most);
/// The text of a tick whose neighbours are `distance` away: "0.002", "2e-05", "15k", "1.5M".
std::string tick_text(double value, double distance);

/// Columns of a curve with more points than kMostColumns; else one per point.
struct Column {
  double step = 0, low = 0, mean = 0, high = 0;  ///< step: mean of its points'
};
inline constexpr size_t kMostColumns = 240;
std::vector<Column> columns_of(const Points& points);

}  // namespace lockstep::report
