#pragma once

#include "lockstep/base/exact_sum.h"

#include <cstdint>
#include <span>
#include <vector>

/// Numbers that compare scores with targets or labels, as scipy.stats and scikit-learn define them.
namespace lockstep::metrics {

/// Sums over pairs (prediction, target) of float32 values. All are exact: products of two float32 fit a double. So
/// Pearson's correlation is right to the last bits even where means dwarf variances, and independent of grouping.
/// words() of several processes are added element by element. Not thread-safe.
class PairSums {
 public:
  void add(float prediction, float target);
  void merge(const PairSums& other);
  int64_t num_pairs() const { return num_pairs_; }

  /// Mean of (prediction - target)^2. NaN without pairs; not finite when a value was not.
  double mean_squared_error() const;
  /// scipy.stats.pearsonr. NaN with fewer than 2 pairs (scipy throws), when one side is constant (scipy warns), and
  /// when a value was not finite.
  double pearson() const;

  static constexpr int kWords = 1 + 5 * ExactSum::kWords;
  std::vector<int64_t> words() const;
  static PairSums from_words(std::span<const int64_t> words);

 private:
  int64_t num_pairs_ = 0;
  ExactSum x_, y_, xx_, yy_, xy_;
};

/// Twice the rank of each value, counted from 1; equal values share the mean of their ranks (hence twice: an integer).
/// No value may be NaN.
std::vector<int64_t> doubled_ranks(std::span<const float> values);

/// scipy.stats.spearmanr: Pearson's correlation of the ranks, ties averaged; computed in integers up to the last
/// division, at most 2^30 rows. NaN with fewer than 2 rows, when one side is constant, or when a value is NaN.
double spearman(std::span<const float> predictions, std::span<const float> targets);

/// Area under the receiver operating characteristic: the share of pairs (positive, negative) in which the positive has
/// the higher score, ties counting half (Mann and Whitney's U). `labels`: nonzero = positive. NaN when there is only
/// one kind (sklearn 1.6 warns, older ones throw) or a score is NaN.
double roc_auc(std::span<const float> scores, std::span<const float> labels);

}  // namespace lockstep::metrics
