#include "lockstep/metrics/regression.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep::metrics {
namespace {

__extension__ using Int128 = __int128;
constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

/// The leading 159 bits of a sum, as doubles of falling size.
std::array<double, 3> leading_parts(ExactSum sum) {
  std::array<double, 3> parts{};
  for (double& part : parts) {
    part = sum.value();
    if (!std::isfinite(part)) break;
    sum.add(-part);
  }
  return parts;
}

/// total += sign * a * b, without rounding.
void add_product(ExactSum& total, double sign, double a, double b) {
  const double product = a * b;
  total.add(sign * product);
  total.add(sign * std::fma(a, b, -product));
}

/// count * sum(ab) - sum(a) sum(b): the covariance times count^2. A difference of large equal-sized numbers, so it is
/// formed exactly and rounded once.
double scaled_covariance(int64_t count, const ExactSum& products, const ExactSum& a, const ExactSum& b) {
  ExactSum total;
  for (const double part : leading_parts(products)) add_product(total, 1, static_cast<double>(count), part);
  for (const double first : leading_parts(a)) {
    for (const double second : leading_parts(b)) add_product(total, -1, first, second);
  }
  return total.value();
}

double correlation(double covariance, double variance_a, double variance_b) {
  if (!(variance_a > 0) || !(variance_b > 0)) return kUndefined;
  // Of one root: sqrt(v * v) is v, so a value correlates with itself by exactly 1. Neither limit of double is near.
  return std::clamp(covariance / std::sqrt(variance_a * variance_b), -1.0, 1.0);
}

bool has_nan(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float value) { return std::isnan(value); });
}

}  // namespace

void PairSums::add(float prediction, float target) {
  const double x = prediction, y = target;
  ++num_pairs_;
  x_.add(x);
  y_.add(y);
  xx_.add(x * x);
  yy_.add(y * y);
  xy_.add(x * y);
}

void PairSums::merge(const PairSums& other) {
  num_pairs_ += other.num_pairs_;
  x_.merge(other.x_);
  y_.merge(other.y_);
  xx_.merge(other.xx_);
  yy_.merge(other.yy_);
  xy_.merge(other.xy_);
}

double PairSums::mean_squared_error() const {
  if (num_pairs_ == 0) return kUndefined;
  const double squares = xx_.value() + yy_.value();
  if (!std::isfinite(squares)) return squares;
  // (x - y)^2 = xx + yy - 2 xy, in the sums' integers: exact.
  auto words = xx_.words();
  const auto yy = yy_.words(), xy = xy_.words();
  for (size_t i = 0; i < words.size(); ++i) words[i] += yy[i] - 2 * xy[i];
  return ExactSum::from_words(words).value() / static_cast<double>(num_pairs_);
}

double PairSums::pearson() const {
  if (num_pairs_ < 2) return kUndefined;
  const double covariance = scaled_covariance(num_pairs_, xy_, x_, y_);
  return correlation(covariance, scaled_covariance(num_pairs_, xx_, x_, x_), scaled_covariance(num_pairs_, yy_, y_, y_));
}

std::vector<int64_t> PairSums::words() const {
  std::vector<int64_t> words = {num_pairs_};
  for (const ExactSum* sum : {&x_, &y_, &xx_, &yy_, &xy_}) {
    const auto of_sum = sum->words();
    words.insert(words.end(), of_sum.begin(), of_sum.end());
  }
  return words;
}

PairSums PairSums::from_words(std::span<const int64_t> words) {
  LS_CHECK(words.size() == kWords, "{} words instead of {}", words.size(), static_cast<int>(kWords));
  PairSums sums;
  sums.num_pairs_ = words[0];
  words = words.subspan(1);
  for (ExactSum* sum : {&sums.x_, &sums.y_, &sums.xx_, &sums.yy_, &sums.xy_}) {
    *sum = ExactSum::from_words(words.first(ExactSum::kWords));
    words = words.subspan(ExactSum::kWords);
  }
  return sums;
}

std::vector<int64_t> doubled_ranks(std::span<const float> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<int64_t> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    // Ranks begin + 1 ... end; twice their mean is their first plus their last.
    for (size_t i = begin; i < end; ++i) ranks[order[i]] = static_cast<int64_t>(begin + 1 + end);
    begin = end;
  }
  return ranks;
}

double spearman(std::span<const float> predictions, std::span<const float> targets) {
  LS_CHECK(predictions.size() == targets.size(), "{} predictions, {} targets", predictions.size(), targets.size());
  LS_CHECK(predictions.size() <= size_t{1} << 30, "{} rows", predictions.size());
  if (predictions.size() < 2 || has_nan(predictions) || has_nan(targets)) return kUndefined;
  const std::vector<int64_t> a = doubled_ranks(predictions), b = doubled_ranks(targets);
  Int128 sum_a = 0, sum_b = 0, sum_aa = 0, sum_bb = 0, sum_ab = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum_a += a[i];
    sum_b += b[i];
    sum_aa += static_cast<Int128>(a[i]) * a[i];
    sum_bb += static_cast<Int128>(b[i]) * b[i];
    sum_ab += static_cast<Int128>(a[i]) * b[i];
  }
  const auto count = static_cast<Int128>(a.size());
  return correlation(static_cast<double>(count * sum_ab - sum_a * sum_b),
                     static_cast<double>(count * sum_aa - sum_a * sum_a),
                     static_cast<double>(count * sum_bb - sum_b * sum_b));
}

double roc_auc(std::span<const float> scores, std::span<const float> labels) {
  LS_CHECK(scores.size() == labels.size(), "{} scores, {} labels", scores.size(), labels.size());
  LS_CHECK(scores.size() <= size_t{1} << 30, "{} rows", scores.size());
  if (has_nan(scores)) return kUndefined;
  const std::vector<int64_t> ranks = doubled_ranks(scores);
  int64_t positives = 0, sum_of_ranks = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (labels[i] == 0) continue;
    ++positives;
    sum_of_ranks += ranks[i];
  }
  const int64_t negatives = static_cast<int64_t>(scores.size()) - positives;
  if (positives == 0 || negatives == 0) return kUndefined;
  const int64_t doubled_wins = sum_of_ranks - positives * (positives + 1);
  return static_cast<double>(doubled_wins) / (2 * static_cast<double>(positives) * static_cast<double>(negatives));
}

}  // namespace lockstep::metrics
