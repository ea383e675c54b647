#include "lockstep/metrics/classification.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace lockstep::metrics {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

double ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

struct LabelCounts {
  int64_t right = 0;      ///< true positives
  int64_t truth = 0;      ///< rows that have the label
  int64_t predicted = 0;  ///< rows that were given it
};

Scores scores_from(const LabelCounts& counts) {
  return {ratio(counts.right, counts.predicted), ratio(counts.right, counts.truth),
          ratio(2 * counts.right, counts.truth + counts.predicted)};
}

Scores average_of(std::span<const LabelCounts> labels, Average average) {
  if (average == Average::Micro) {
    LabelCounts all;
    for (const LabelCounts& label : labels) {
      all.right += label.right;
      all.truth += label.truth;
      all.predicted += label.predicted;
    }
    return scores_from(all);
  }
  Scores sum;
  int64_t total_weight = 0;
  for (const LabelCounts& label : labels) {
    const int64_t weight = average == Average::Macro ? 1 : label.truth;
    const Scores scores = scores_from(label);
    sum.precision += static_cast<double>(weight) * scores.precision;
    sum.recall += static_cast<double>(weight) * scores.recall;
    sum.f1 += static_cast<double>(weight) * scores.f1;
    total_weight += weight;
  }
  if (total_weight == 0) return {};
  const auto divisor = static_cast<double>(total_weight);
  return {sum.precision / divisor, sum.recall / divisor, sum.f1 / divisor};
}

LabelCounts counts_of(const Confusion& confusion, int64_t label) {
  LabelCounts counts{confusion.count(label, label), 0, 0};
  for (int64_t other = 0; other < confusion.num_labels(); ++other) {
    counts.truth += confusion.count(label, other);
    counts.predicted += confusion.count(other, label);
  }
  return counts;
}

}  // namespace

Confusion::Confusion(int64_t num_labels) : num_labels_(num_labels) {
  LS_CHECK(num_labels >= 1, "{} labels", num_labels);
  counts_.assign(static_cast<size_t>(num_labels * num_labels), 0);
}

void Confusion::add(int64_t label, int64_t prediction) {
  LS_CHECK(label >= 0 && label < num_labels_ && prediction >= 0 && prediction < num_labels_,
           "label {} and prediction {} of {} labels", label, prediction, num_labels_);
  ++counts_[static_cast<size_t>(label * num_labels_ + prediction)];
}

void Confusion::merge(const Confusion& other) {
  LS_CHECK(other.num_labels_ == num_labels_, "{} labels and {}", num_labels_, other.num_labels_);
  for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
}

int64_t Confusion::num_rows() const { return std::accumulate(counts_.begin(), counts_.end(), int64_t{0}); }

int64_t Confusion::count(int64_t label, int64_t prediction) const {
  return counts_[static_cast<size_t>(label * num_labels_ + prediction)];
}

Confusion Confusion::from_words(int64_t num_labels, std::span<const int64_t> words) {
  Confusion confusion(num_labels);
  LS_CHECK(words.size() == confusion.counts_.size(), "{} words for {} labels", words.size(), num_labels);
  std::copy(words.begin(), words.end(), confusion.counts_.begin());
  return confusion;
}

double accuracy(const Confusion& confusion) {
  int64_t right = 0;
  for (int64_t label = 0; label < confusion.num_labels(); ++label) right += confusion.count(label, label);
  const int64_t num_rows = confusion.num_rows();
  return num_rows == 0 ? kNaN : ratio(right, num_rows);
}

Scores scores_of_label(const Confusion& confusion, int64_t label) {
  LS_CHECK(label >= 0 && label < confusion.num_labels(), "label {} of {}", label, confusion.num_labels());
  return scores_from(counts_of(confusion, label));
}

Scores average_scores(const Confusion& confusion, Average average) {
  std::vector<LabelCounts> labels;
  for (int64_t label = 0; label < confusion.num_labels(); ++label) {
    const LabelCounts counts = counts_of(confusion, label);
    if (counts.truth + counts.predicted > 0) labels.push_back(counts);
  }
  return average_of(labels, average);
}

double matthews_correlation(const Confusion& confusion) {
  // All terms are integers below the square of the number of rows: exact in 128 bits.
  __extension__ using Wide = __int128;
  Wide right = 0, rows = confusion.num_rows(), truth_predicted = 0, truth_truth = 0, predicted_predicted = 0;
  for (int64_t label = 0; label < confusion.num_labels(); ++label) {
    const LabelCounts counts = counts_of(confusion, label);
    right += counts.right;
    truth_predicted += static_cast<Wide>(counts.truth) * counts.predicted;
    truth_truth += static_cast<Wide>(counts.truth) * counts.truth;
    predicted_predicted += static_cast<Wide>(counts.predicted) * counts.predicted;
  }
  const auto truth_variance = static_cast<double>(rows * rows - truth_truth);
  const auto predicted_variance = static_cast<double>(rows * rows - predicted_predicted);
  if (truth_variance == 0 || predicted_variance == 0) return 0;
  return static_cast<double>(right * rows - truth_predicted) / std::sqrt(truth_variance * predicted_variance);
}

MultiLabelCounts::MultiLabelCounts(int64_t num_labels) {
  LS_CHECK(num_labels >= 1, "{} labels", num_labels);
  labels_.resize(static_cast<size_t>(num_labels));
}

void MultiLabelCounts::add(std::span<const uint8_t> labels, std::span<const uint8_t> predictions) {
  LS_CHECK(labels.size() == labels_.size() && predictions.size() == labels_.size(), "{} labels, {} predictions, not {}",
           labels.size(), predictions.size(), labels_.size());
  bool exact = true;
  for (size_t i = 0; i < labels_.size(); ++i) {
    const bool truth = labels[i] != 0, predicted = predictions[i] != 0;
    labels_[i].true_positives += truth && predicted;
    labels_[i].false_positives += !truth && predicted;
    labels_[i].false_negatives += truth && !predicted;
    exact = exact && truth == predicted;
  }
  ++num_rows_;
  num_exact_rows_ += exact;
}

void MultiLabelCounts::merge(const MultiLabelCounts& other) {
  std::vector<int64_t> sum = words();
  const std::vector<int64_t> addend = other.words();
  LS_CHECK(sum.size() == addend.size(), "{} labels and {}", num_labels(), other.num_labels());
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += addend[i];
  *this = from_words(num_labels(), sum);
}

std::vector<int64_t> MultiLabelCounts::words() const {
  std::vector<int64_t> words = {num_rows_, num_exact_rows_};
  for (const Label& label : labels_) {
    words.insert(words.end(), {label.true_positives, label.false_positives, label.false_negatives});
  }
  return words;
}

MultiLabelCounts MultiLabelCounts::from_words(int64_t num_labels, std::span<const int64_t> words) {
  MultiLabelCounts counts(num_labels);
  LS_CHECK(words.size() == 2 + 3 * counts.labels_.size(), "{} words for {} labels", words.size(), num_labels);
  counts.num_rows_ = words[0];
  counts.num_exact_rows_ = words[1];
  for (size_t i = 0; i < counts.labels_.size(); ++i) {
    counts.labels_[i] = {words[3 * i + 2], words[3 * i + 3], words[3 * i + 4]};
  }
  return counts;
}

Scores average_scores(const MultiLabelCounts& counts, Average average) {
  std::vector<LabelCounts> labels;
  for (const MultiLabelCounts::Label& label : counts.labels()) {
    labels.push_back({label.true_positives, label.true_positives + label.false_negatives,
                      label.true_positives + label.false_positives});
  }
  return average_of(labels, average);
}

double subset_accuracy(const MultiLabelCounts& counts) {
  return counts.num_rows() == 0 ? kNaN : ratio(counts.num_exact_rows(), counts.num_rows());
}

void LogLoss::add(double probability) {
  constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  ++num_rows_;
  sum_.add(std::isnan(probability) ? probability : -std::log(std::clamp(probability, kEpsilon, 1 - kEpsilon)));
}

void LogLoss::merge(const LogLoss& other) {
  num_rows_ += other.num_rows_;
  sum_.merge(other.sum_);
}

double LogLoss::value() const { return num_rows_ == 0 ? kNaN : sum_.value() / static_cast<double>(num_rows_); }

std::vector<int64_t> LogLoss::words() const {
  std::vector<int64_t> words = {num_rows_};
  const auto sum = sum_.words();
  words.insert(words.end(), sum.begin(), sum.end());
  return words;
}

LogLoss LogLoss::from_words(std::span<const int64_t> words) {
  LS_CHECK(words.size() == kWords, "{} words instead of {}", words.size(), static_cast<int>(kWords));
  LogLoss loss;
  loss.num_rows_ = words[0];
  loss.sum_ = ExactSum::from_words(words.subspan(1));
  return loss;
}

int64_t argmax(std::span<const float> values) {
  LS_CHECK(!values.empty(), "no values");
  size_t best = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) return static_cast<int64_t>(i);
    if (values[i] > values[best]) best = i;
  }
  return static_cast<int64_t>(best);
}

double softmax_at(std::span<const float> logits, int64_t label) {
  LS_CHECK(label >= 0 && label < static_cast<int64_t>(logits.size()), "label {} of {}", label, logits.size());
  const double largest = logits[static_cast<size_t>(argmax(logits))];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return std::exp(logits[static_cast<size_t>(label)] - largest) / sum;
}

}  // namespace lockstep::metrics
