#pragma once

#include "lockstep/metrics/classification.h"
#include "lockstep/metrics/regression.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::metrics {

/// What a row's labels are: one class index, one 0/1 per class, or one target per output.
enum class Problem { SingleLabel, MultiLabel, Regression };

/// In the order they are printed, without the prefix "eval_".
using NamedValues = std::vector<std::pair<std::string, double>>;

/// All metrics of an evaluation from one pass over its rows. What can be summed is summed exactly; what needs every row
/// (see needs_rows) keeps one float32 score and one label per row and output. Not thread-safe.
///
/// A prediction is the largest logit (SingleLabel; the first of equal ones, the first NaN if there is one), every logit
/// above 0 (MultiLabel, a probability above 1/2), or the output itself (Regression).
class Evaluation {
 public:
  /// `num_outputs`: logits per row. `keep_rows`: also what roc_auc and spearmanr need.
  Evaluation(Problem problem, int64_t num_outputs, bool keep_rows);

  /// One row. logits: num_outputs. labels: 1 class index (SingleLabel), else num_outputs. A label that is not possible
  /// is Error{Data}.
  void add(std::span<const float> logits, std::span<const float> labels);

  /// Sums alone: the words of several processes are added as int64.
  std::vector<int64_t> words() const;
  void set_words(std::span<const int64_t> words);
  /// Rows alone, in data order: those of several processes are joined in any order, which changes no value.
  /// [score, label] pairs, row by row, output by output; empty without keep_rows.
  const std::vector<float>& rows() const { return rows_; }
  void set_rows(std::vector<float> rows);

  int64_t num_rows() const;
  /// All that available() names, or those given. Error{Usage} for a name that the problem does not have.
  NamedValues values() const;
  NamedValues values(std::span<const std::string> names) const;
  double value(std::string_view name) const;

 private:
  double single_label(std::string_view name) const;
  double multi_label(std::string_view name) const;
  double regression(std::string_view name) const;
  /// Mean over outputs of a function of (scores, labels).
  template <class Function>
  double mean_over_outputs(Function function) const;

  Problem problem_;
  int64_t num_outputs_;
  bool keep_rows_;
  Confusion confusion_;
  LogLoss log_loss_;
  MultiLabelCounts multi_;
  std::vector<PairSums> pairs_;  ///< per output
  std::vector<float> rows_;
};

/// Names, in the order they are printed:
/// SingleLabel: accuracy, f1, precision, recall (of label 1 with two labels, else macro), f1_macro, f1_micro,
///   f1_weighted, matthews_correlation, log_loss, and with two labels roc_auc (of the logits' difference).
/// MultiLabel: f1 (micro), f1_macro, precision, recall (micro), accuracy (subset), roc_auc (mean over labels).
/// Regression: mse, pearson, spearmanr; with several outputs their means.
std::vector<std::string> available(Problem problem, int64_t num_outputs);
/// roc_auc and spearmanr.
bool needs_rows(std::string_view name);

/// The metrics of a GLUE task (cola, sst2, mrpc, stsb, qqp, mnli, mnli_matched, mnli_mismatched, qnli, rte, wnli, hans)
/// under the names that `evaluate`'s glue metric prints. Error{Usage} for another task.
std::vector<std::string> glue_metrics(std::string_view task);

}  // namespace lockstep::metrics
