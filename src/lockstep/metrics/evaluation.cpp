#include "lockstep/metrics/evaluation.h"

#include "lockstep/base/error.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace lockstep::metrics {
namespace {

int64_t class_index(float label, int64_t num_labels) {
  const double value = label;
  if (value != std::floor(value) || !(value >= 0) || !(value < static_cast<double>(num_labels))) {
    throw Error::data("an evaluation row has label {}, the model has classes 0 to {}. Check the label column and "
                      "num_labels.",
                      value, num_labels - 1);
  }
  return static_cast<int64_t>(value);
}

uint8_t indicator(float label) {
  if (label != 0 && label != 1) {
    throw Error::data("an evaluation row has {} for a label that must be 0 or 1. Check the label column.",
                      static_cast<double>(label));
  }
  return label != 0 ? 1 : 0;
}

void append(std::vector<int64_t>& all, const std::vector<int64_t>& words) {
  all.insert(all.end(), words.begin(), words.end());
}

Error unknown_metric(std::string_view name, Problem problem, int64_t num_outputs) {
  return Error::usage("metric \"{}\" is not one of this problem's. Use one of {}.", name,
                      fmt::join(available(problem, num_outputs), ", "));
}

}  // namespace

Evaluation::Evaluation(Problem problem, int64_t num_outputs, bool keep_rows)
    : problem_(problem),
      num_outputs_(num_outputs),
      keep_rows_(keep_rows),
      confusion_(problem == Problem::SingleLabel ? num_outputs : 1),
      multi_(num_outputs),
      pairs_(problem == Problem::Regression ? static_cast<size_t>(num_outputs) : 0) {}

void Evaluation::add(std::span<const float> logits, std::span<const float> labels) {
  const auto num_labels = static_cast<size_t>(problem_ == Problem::SingleLabel ? 1 : num_outputs_);
  LS_CHECK(logits.size() == static_cast<size_t>(num_outputs_) && labels.size() == num_labels,
           "{} logits and {} labels for {} outputs", logits.size(), labels.size(), num_outputs_);
  if (problem_ == Problem::SingleLabel) {
    const int64_t label = class_index(labels[0], num_outputs_);
    confusion_.add(label, argmax(logits));
    log_loss_.add(softmax_at(logits, label));
    if (keep_rows_ && num_outputs_ == 2) rows_.insert(rows_.end(), {logits[1] - logits[0], labels[0]});
    return;
  }
  if (problem_ == Problem::MultiLabel) {
    std::vector<uint8_t> truth, predicted;
    for (const float label : labels) truth.push_back(indicator(label));
    for (const float logit : logits) predicted.push_back(logit > 0 ? 1 : 0);
    multi_.add(truth, predicted);
  } else {
    for (size_t i = 0; i < logits.size(); ++i) pairs_[i].add(logits[i], labels[i]);
  }
  if (!keep_rows_) return;
  for (size_t i = 0; i < logits.size(); ++i) rows_.insert(rows_.end(), {logits[i], labels[i]});
}

std::vector<int64_t> Evaluation::words() const {
  std::vector<int64_t> words;
  if (problem_ == Problem::SingleLabel) {
    words = confusion_.words();
    append(words, log_loss_.words());
  } else if (problem_ == Problem::MultiLabel) {
    words = multi_.words();
  } else {
    for (const PairSums& sums : pairs_) append(words, sums.words());
  }
  return words;
}

void Evaluation::set_words(std::span<const int64_t> words) {
  const size_t expected = this->words().size();
  LS_CHECK(words.size() == expected, "{} words instead of {}", words.size(), expected);
  if (problem_ == Problem::SingleLabel) {
    const size_t counts = confusion_.words().size();
    confusion_ = Confusion::from_words(num_outputs_, words.first(counts));
    log_loss_ = LogLoss::from_words(words.subspan(counts));
  } else if (problem_ == Problem::MultiLabel) {
    multi_ = MultiLabelCounts::from_words(num_outputs_, words);
  } else {
    for (PairSums& sums : pairs_) {
      sums = PairSums::from_words(words.first(PairSums::kWords));
      words = words.subspan(PairSums::kWords);
    }
  }
}

void Evaluation::set_rows(std::vector<float> rows) {
  LS_CHECK(rows.size() % 2 == 0, "{} values of pairs", rows.size());
  rows_ = std::move(rows);
}

int64_t Evaluation::num_rows() const {
  if (problem_ == Problem::SingleLabel) return confusion_.num_rows();
  return problem_ == Problem::MultiLabel ? multi_.num_rows() : pairs_[0].num_pairs();
}

NamedValues Evaluation::values() const {
  std::vector<std::string> names = available(problem_, num_outputs_);
  if (!keep_rows_) std::erase_if(names, needs_rows);
  return values(names);
}

NamedValues Evaluation::values(std::span<const std::string> names) const {
  NamedValues values;
  for (const std::string& name : names) values.emplace_back(name, value(name));
  return values;
}

double Evaluation::value(std::string_view name) const {
  LS_CHECK(keep_rows_ || !needs_rows(name), "{} needs the rows, which were not kept", name);
  if (problem_ == Problem::SingleLabel) return single_label(name);
  return problem_ == Problem::MultiLabel ? multi_label(name) : regression(name);
}

double Evaluation::single_label(std::string_view name) const {
  if (name == "accuracy") return accuracy(confusion_);
  if (name == "f1_macro") return average_scores(confusion_, Average::Macro).f1;
  if (name == "f1_micro") return average_scores(confusion_, Average::Micro).f1;
  if (name == "f1_weighted") return average_scores(confusion_, Average::Weighted).f1;
  if (name == "matthews_correlation") return matthews_correlation(confusion_);
  if (name == "log_loss") return log_loss_.value();
  if (name == "roc_auc" && num_outputs_ == 2) return mean_over_outputs(roc_auc);
  const Scores scores = num_outputs_ == 2 ? scores_of_label(confusion_, 1) : average_scores(confusion_, Average::Macro);
  if (name == "f1") return scores.f1;
  if (name == "precision") return scores.precision;
  if (name == "recall") return scores.recall;
  throw unknown_metric(name, problem_, num_outputs_);
}

double Evaluation::multi_label(std::string_view name) const {
  if (name == "accuracy") return subset_accuracy(multi_);
  if (name == "f1_macro") return average_scores(multi_, Average::Macro).f1;
  if (name == "roc_auc") return mean_over_outputs(roc_auc);
  const Scores scores = average_scores(multi_, Average::Micro);
  if (name == "f1") return scores.f1;
  if (name == "precision") return scores.precision;
  if (name == "recall") return scores.recall;
  throw unknown_metric(name, problem_, num_outputs_);
}

double Evaluation::regression(std::string_view name) const {
  if (name == "spearmanr") return mean_over_outputs(spearman);
  if (name != "mse" && name != "pearson") throw unknown_metric(name, problem_, num_outputs_);
  double sum = 0;
  for (const PairSums& sums : pairs_) sum += name == "mse" ? sums.mean_squared_error() : sums.pearson();
  return sum / static_cast<double>(pairs_.size());
}

template <class Function>
double Evaluation::mean_over_outputs(Function function) const {
  const auto per_row = static_cast<size_t>(problem_ == Problem::SingleLabel ? 1 : num_outputs_);
  double sum = 0;
  for (size_t output = 0; output < per_row; ++output) {
    std::vector<float> scores, labels;
    for (size_t i = 2 * output; i + 1 < rows_.size(); i += 2 * per_row) {
      scores.push_back(rows_[i]);
      labels.push_back(rows_[i + 1]);
    }
    sum += function(scores, labels);
  }
  return sum / static_cast<double>(per_row);
}

std::vector<std::string> available(Problem problem, int64_t num_outputs) {
  if (problem == Problem::Regression) return {"mse", "pearson", "spearmanr"};
  if (problem == Problem::MultiLabel) return {"f1", "f1_macro", "precision", "recall", "accuracy", "roc_auc"};
  std::vector<std::string> names = {"accuracy", "f1", "precision", "recall", "f1_macro", "f1_micro", "f1_weighted",
                                    "matthews_correlation", "log_loss"};
  if (num_outputs == 2) names.emplace_back("roc_auc");
  return names;
}

bool needs_rows(std::string_view name) { return name == "roc_auc" || name == "spearmanr"; }

std::vector<std::string> glue_metrics(std::string_view task) {
  if (task == "cola") return {"matthews_correlation"};
  if (task == "stsb") return {"pearson", "spearmanr"};
  if (task == "mrpc" || task == "qqp") return {"accuracy", "f1"};
  constexpr std::string_view kAccuracyOnly[] = {"sst2", "mnli", "mnli_matched", "mnli_mismatched", "qnli", "rte",
                                                "wnli", "hans"};
  if (std::find(std::begin(kAccuracyOnly), std::end(kAccuracyOnly), task) != std::end(kAccuracyOnly)) {
    return {"accuracy"};
  }
  throw Error::usage("task = {}: is not one of GLUE's. Use one of cola, sst2, mrpc, qqp, stsb, mnli, qnli, rte, wnli.",
                     task);
}

}  // namespace lockstep::metrics
