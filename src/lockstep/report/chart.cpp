#include "lockstep/report/chart.h"

#include "lockstep/report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace lockstep::report {
namespace {

// Units of the view box. At 400 wide a text of 11 stays readable on a phone, where the chart is about 350 pixels wide.
constexpr double kWidth = 400, kHeight = 220;
constexpr double kLeft = 46, kRight = 10, kTop = 8, kBottom = 24;
constexpr double kPlotWidth = kWidth - kLeft - kRight, kPlotHeight = kHeight - kTop - kBottom;
constexpr int kMostTicksX = 6, kMostTicksY = 6;
constexpr size_t kReadouts = 40;
/// Points that lie further apart than this are shown.
constexpr double kDotDistance = 7;
constexpr double kLineHeight = 14;

struct Range {
  double low = 0, high = 0;
  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

struct Frame {
  Range steps, values;
  double x(double step) const { return kLeft + (step - steps.low) / (steps.high - steps.low) * kPlotWidth; }
  double y(double value) const {
    return kTop + (values.high - value) / (values.high - values.low) * kPlotHeight;
  }
};

/// Never empty in either direction.
Range widened(Range range, double margin) {
  if (range.high == range.low) {
    const double half = range.low == 0 ? 1 : std::abs(range.low) * 0.05;
    return {range.low - half, range.high + half};
  }
  const double extra = (range.high - range.low) * margin;
  return {range.low - extra, range.high + extra};
}

std::optional<Frame> frame_of(const std::vector<Curve>& curves) {
  std::optional<Frame> frame;
  for (const Curve& curve : curves) {
    for (const Point& point : curve.points) {
      if (!frame) frame = Frame{{point.step, point.step}, {point.value, point.value}};
      frame->steps.include(point.step);
      frame->values.include(point.value);
    }
  }
  if (frame) *frame = {widened(frame->steps, 0), widened(frame->values, 0.04)};
  return frame;
}

double distance_of(const std::vector<double>& marks) { return marks.size() < 2 ? 1 : marks[1] - marks[0]; }

std::string axes(const Frame& frame) {
  std::string svg = "<g class=\"axes\">";
  const std::vector<double> values = ticks(frame.values.low, frame.values.high, kMostTicksY);
  const std::vector<double> steps = ticks(frame.steps.low, frame.steps.high, kMostTicksX);
  for (const double value : values) {
    const double y = frame.y(value);
    svg += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\"/><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>",
                       kLeft, y, kWidth - kRight, kLeft - 5, y + 3.5, tick_text(value, distance_of(values)));
  }
  for (const double step : steps) {
    const double x = frame.x(step);
    if (step != std::floor(step)) continue;
    const char* anchor = x > kWidth - kRight - 12 ? "end" : "middle";
    svg += fmt::format("<path d=\"M{:.1f} {:.1f}v4\"/><text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x,
                       kHeight - kBottom, x, kHeight - 8, anchor, tick_text(step, distance_of(steps)));
  }
  return svg + fmt::format("<path class=\"base\" d=\"M{:.1f} {:.1f}H{:.1f}\"/></g>", kLeft, kHeight - kBottom,
                           kWidth - kRight);
}

std::string path_point(const Frame& frame, double step, double value) {
  return fmt::format("{:.1f} {:.1f}", frame.x(step), frame.y(value));
}

std::string curve_svg(const Frame& frame, const Curve& curve) {
  const std::vector<Column> columns = columns_of(curve.points);
  const double width = frame.x(columns.back().step) - frame.x(columns.front().step);
  const bool has_dots = width >= kDotDistance * static_cast<double>(columns.size() - 1);
  std::string line, band, dots;
  for (const Column& column : columns) {
    line += (line.empty() ? 'M' : 'L') + path_point(frame, column.step, column.mean);
    band += (band.empty() ? 'M' : 'L') + path_point(frame, column.step, column.high);
    if (!has_dots) continue;
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>", frame.x(column.step), frame.y(column.mean));
  }
  for (size_t i = columns.size(); i-- > 0;) band += 'L' + path_point(frame, columns[i].step, columns[i].low);
  std::string svg = fmt::format("<g class=\"curve r{} c{}\">", curve.run, curve.run % 8);
  if (curve.points.size() > columns.size()) svg += fmt::format("<path class=\"band\" d=\"{}Z\"/>", band);
  return svg + fmt::format("<path class=\"line\" d=\"{}\"/>{}</g>", line, dots);
}

/// The point next to `step`; none if the curve has ended before or not begun, or has a hole there. `reach`: of a strip.
const Point* point_near(const Points& points, double step, double reach) {
  if (points.size() > 1) {
    const double spacing = (points.back().step - points.front().step) / static_cast<double>(points.size() - 1);
    reach = std::max(reach, 0.51 * spacing);
  }
  const auto next = std::lower_bound(points.begin(), points.end(), step,
                                     [](const Point& point, double at) { return point.step < at; });
  const Point* best = nullptr;
  if (next != points.end()) best = &*next;
  if (next != points.begin() && (best == nullptr || step - std::prev(next)->step < best->step - step)) {
    best = &*std::prev(next);
  }
  return best != nullptr && std::abs(best->step - step) <= reach ? best : nullptr;
}

/// A strip of the chart that shows, when pointed at, the update and each run's value there.
std::string readout(const Frame& frame, const std::vector<Curve>& curves, double left, double width) {
  const double step = frame.steps.low + (left + width / 2 - kLeft) / kPlotWidth * (frame.steps.high - frame.steps.low);
  const double reach = std::max(0.5, width / kPlotWidth * (frame.steps.high - frame.steps.low));
  std::string lines;
  size_t num_lines = 0;
  double shown_step = std::round(step);
  const bool on_the_right = left + width / 2 > kLeft + kPlotWidth / 2;
  const double box_width = 96, box_left = on_the_right ? kLeft + 4 : kWidth - kRight - box_width - 4;
  for (const Curve& curve : curves) {
    const Point* point = point_near(curve.points, step, reach);
    if (point == nullptr) continue;
    if (num_lines++ == 0) shown_step = point->step;
    lines += fmt::format("<text class=\"r{} c{}\" x=\"{:.0f}\" y=\"{:.0f}\">{}</text>", curve.run, curve.run % 8,
                         box_left + 8, kTop + 17 + kLineHeight * static_cast<double>(num_lines),
                         number_text(point->value));
  }
  if (num_lines == 0) return {};
  return fmt::format("<g class=\"spot\"><rect class=\"strip\" x=\"{:.1f}\" y=\"{:.0f}\" width=\"{:.1f}\" height=\"{:.0f}\"/>"
                     "<g class=\"tip\"><path d=\"M{:.1f} {:.0f}v{:.0f}\"/><rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"{:.0f}\" "
                     "height=\"{:.0f}\" rx=\"4\"/><text x=\"{:.0f}\" y=\"{:.0f}\">update {}</text>{}</g></g>",
                     left, kTop, width, kPlotHeight, frame.x(shown_step), kTop, kPlotHeight, box_left, kTop + 3, box_width,
                     10 + kLineHeight * static_cast<double>(num_lines + 1), box_left + 8, kTop + 17,
                     number_text(shown_step), lines);
}

}  // namespace

std::vector<double> ticks(double low, double high, int most) {
  const double raw = (high - low) / most;
  if (!(raw > 0) || !std::isfinite(raw)) return {};
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> found;
  for (double n = std::ceil(low / step); n * step <= high && found.size() < static_cast<size_t>(most) + 1; ++n) {
    found.push_back(n * step);
  }
  return found;
}

std::string tick_text(double value, double distance) {
  const double size = std::abs(value);
  if (size < 1e-6 * distance) return "0";
  // As many digits as it takes to tell neighbours apart.
  const int digits = std::max(1, 1 + static_cast<int>(std::floor(std::log10(size)) - std::floor(std::log10(distance))));
  for (const auto& [unit, letter] : {std::pair(1e9, "G"), std::pair(1e6, "M"), std::pair(1e4, "k")}) {
    if (size >= unit) return fmt::format("{:.{}g}{}", value / (unit == 1e4 ? 1e3 : unit), std::max(digits, 3), letter);
  }
  return fmt::format("{:.{}g}", value, std::max(digits, 4));
}

std::vector<Column> columns_of(const Points& points) {
  std::vector<Column> columns;
  if (points.size() <= kMostColumns) {
    for (const Point& point : points) columns.push_back({point.step, point.value, point.value, point.value});
    return columns;
  }
  for (size_t i = 0; i < kMostColumns; ++i) {
    const size_t begin = points.size() * i / kMostColumns, end = points.size() * (i + 1) / kMostColumns;
    Column column{0, points[begin].value, 0, points[begin].value};
    for (size_t at = begin; at < end; ++at) {
      column.step += points[at].step / static_cast<double>(end - begin);
      column.mean += points[at].value / static_cast<double>(end - begin);
      column.low = std::min(column.low, points[at].value);
      column.high = std::max(column.high, points[at].value);
    }
    columns.push_back(column);
  }
  return columns;
}

std::string chart_svg(const std::string& label, const std::vector<Curve>& curves) {
  const std::optional<Frame> frame = frame_of(curves);
  if (!frame) return {};
  std::string svg = fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">", kWidth, kHeight,
                                escape_html(label));
  svg += axes(*frame);
  for (const Curve& curve : curves) {
    if (!curve.points.empty()) svg += curve_svg(*frame, curve);
  }
  const double width = kPlotWidth / static_cast<double>(kReadouts);
  for (size_t i = 0; i < kReadouts; ++i) svg += readout(*frame, curves, kLeft + static_cast<double>(i) * width, width);
  return svg + "</svg>";
}

}  // namespace lockstep::report
