#pragma once

#include "lockstep/base/exact_sum.h"

#include <cstdint>
#include <span>
#include <vector>

/// Numbers that judge a classifier, as scikit-learn 1.x defines them. Every streaming type here holds integers or exact
/// sums, so that the value does not depend on how rows were grouped or in which order they came. words() of several
/// processes are added element by element as int64 and give the words of all rows together. Nothing is thread-safe.
namespace lockstep::metrics {

struct Scores {
  double precision = 0, recall = 0, f1 = 0;
};

/// How the scores of several labels become one. Micro: from the summed counts. Macro: the plain mean over labels.
/// Weighted: the mean weighted by how often a label is right.
enum class Average { Micro, Macro, Weighted };

/// One label of `num_labels` per row: how often label t was predicted as p.
class Confusion {
 public:
  explicit Confusion(int64_t num_labels);
  /// Both in [0, num_labels); LS_CHECK.
  void add(int64_t label, int64_t prediction);
  void merge(const Confusion& other);

  int64_t num_labels() const { return num_labels_; }
  int64_t num_rows() const;
  int64_t count(int64_t label, int64_t prediction) const;
  /// Row-major [label, prediction], num_labels^2 entries.
  const std::vector<int64_t>& words() const { return counts_; }
  static Confusion from_words(int64_t num_labels, std::span<const int64_t> words);

 private:
  int64_t num_labels_;
  std::vector<int64_t> counts_;
};

/// Without rows NaN.
double accuracy(const Confusion& confusion);
/// Of one label against the rest (average="binary" with pos_label=label). A quotient 0/0 is 0 (zero_division=0).
Scores scores_of_label(const Confusion& confusion, int64_t label);
/// Over the labels that occur, as truth or as prediction; others are left out, as scikit-learn does when it is not told
/// the labels. Macro and weighted F1 average the labels' F1. Without rows all are 0.
Scores average_scores(const Confusion& confusion, Average average);
/// Matthews' correlation, for several labels Gorodkin's R_K (2004). 0 when truth or prediction is constant.
double matthews_correlation(const Confusion& confusion);

/// Any number of labels per row.
class MultiLabelCounts {
 public:
  explicit MultiLabelCounts(int64_t num_labels);
  /// One entry per label, nonzero = given.
  void add(std::span<const uint8_t> labels, std::span<const uint8_t> predictions);
  void merge(const MultiLabelCounts& other);

  struct Label {
    int64_t true_positives = 0, false_positives = 0, false_negatives = 0;
  };
  int64_t num_labels() const { return static_cast<int64_t>(labels_.size()); }
  int64_t num_rows() const { return num_rows_; }
  int64_t num_exact_rows() const { return num_exact_rows_; }
  const std::vector<Label>& labels() const { return labels_; }
  /// Rows, rows that are right in every label, then three counts per label.
  std::vector<int64_t> words() const;
  static MultiLabelCounts from_words(int64_t num_labels, std::span<const int64_t> words);

 private:
  int64_t num_rows_ = 0, num_exact_rows_ = 0;
  std::vector<Label> labels_;
};

/// Over all labels, those that never occur included (their scores are 0), as scikit-learn does for indicator matrices.
Scores average_scores(const MultiLabelCounts& counts, Average average);
/// Share of rows that are right in every label; NaN without rows.
double subset_accuracy(const MultiLabelCounts& counts);

/// Mean of -log(probability of the right label), each probability first clipped to [eps, 1 - eps] with eps = 2^-52,
/// as log_loss does for float64.
class LogLoss {
 public:
  void add(double probability);
  void merge(const LogLoss& other);
  /// NaN without rows or when a probability was NaN.
  double value() const;
  static constexpr int kWords = 1 + ExactSum::kWords;
  std::vector<int64_t> words() const;
  static LogLoss from_words(std::span<const int64_t> words);

 private:
  int64_t num_rows_ = 0;
  ExactSum sum_;
};

/// Index of the largest; the first of equal ones; the first NaN if there is one (numpy's argmax).
int64_t argmax(std::span<const float> values);
/// exp(logits[label]) / sum(exp(logits)), in double.
double softmax_at(std::span<const float> logits, int64_t label);

}  // namespace lockstep::metrics
