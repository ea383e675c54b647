#include "lockstep/recipes/classify_evaluation.h"

#include "lockstep/base/error.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace lockstep::recipes {
namespace {

using OrderedJson = nlohmann::ordered_json;

metrics::Problem to_metrics(data::Problem problem) {
  switch (problem) {
    case data::Problem::SingleLabel: return metrics::Problem::SingleLabel;
    case data::Problem::MultiLabel: return metrics::Problem::MultiLabel;
    case data::Problem::Regression: break;
  }
  return metrics::Problem::Regression;
}

std::span<const float> outputs_of(const train::Evaluation& evaluation, size_t row) {
  const auto width = static_cast<size_t>(evaluation.outputs.size(1));
  return {evaluation.outputs.const_data_ptr<float>() + row * width, width};
}

OrderedJson number(double value) { return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr); }

std::string class_name(const data::LabelSet& labels, size_t index) {
  return index < labels.names().size() ? labels.names()[index] : fmt::format("LABEL_{}", index);
}

double sigmoid(float x) { return 1 / (1 + std::exp(-static_cast<double>(x))); }

OrderedJson prediction(std::span<const float> outputs, const data::LabelSet& labels) {
  OrderedJson line = OrderedJson::object();
  if (labels.problem == data::Problem::Regression) {
    if (outputs.size() == 1) return {{"label", number(outputs[0])}};
    for (const float value : outputs) line["label"].push_back(number(value));
    return line;
  }
  OrderedJson scores = OrderedJson::array();
  if (labels.problem == data::Problem::SingleLabel) {
    line["label"] = class_name(labels, static_cast<size_t>(metrics::argmax(outputs)));
    for (size_t i = 0; i < outputs.size(); ++i) {
      scores.push_back(number(metrics::softmax_at(outputs, static_cast<int64_t>(i))));
    }
  } else {
    line["label"] = OrderedJson::array();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] > 0) line["label"].push_back(class_name(labels, i));
      scores.push_back(number(sigmoid(outputs[i])));
    }
  }
  line["scores"] = std::move(scores);
  return line;
}

}  // namespace

std::vector<std::string> metrics_of(const data::LabelSet& labels) {
  return metrics::available(to_metrics(labels.problem), labels.num_labels);
}

std::vector<std::string> wanted_metrics(const ClassifyOptions& options, const data::ClassifyDataset& dataset) {
  if (options.evaluation.prediction_loss_only) return {};
  if (options.output.metric_name) return *options.output.metric_name;
  if (!dataset.task.empty()) return metrics::glue_metrics(dataset.task);
  return metrics_of(dataset.labels);
}

train::NamedMetrics named_metrics(const train::Evaluation& evaluation, const std::vector<data::LabelledRow>& rows,
                                  const data::LabelSet& labels, std::span<const std::string> wanted,
                                  const std::string& prefix, const std::string& suffix) {
  train::NamedMetrics named;
  const auto add = [&](const std::string& name, double value) {
    named.emplace_back(prefix + "_" + name + suffix, value);
  };
  add("loss", evaluation.loss());
  const bool keep_rows = std::any_of(wanted.begin(), wanted.end(), metrics::needs_rows);
  metrics::Evaluation judged(to_metrics(labels.problem), labels.num_labels, keep_rows);
  for (size_t row = 0; row < rows.size(); ++row) {
    if (!rows[row].labels.empty()) judged.add(outputs_of(evaluation, row), rows[row].labels);
  }
  for (const auto& [name, value] : judged.values(wanted)) add(name, value);
  add("runtime", evaluation.seconds);
  add("samples_per_second", static_cast<double>(evaluation.num_rows) / std::max(1e-9, evaluation.seconds));
  return named;
}

std::string prediction_lines(const train::Evaluation& evaluation, const std::vector<data::LabelledRow>& rows,
                             const data::LabelSet& labels) {
  std::string text;
  for (size_t row = 0; row < rows.size(); ++row) {
    OrderedJson line = {{"row", rows[row].source_row}};
    line.update(prediction(outputs_of(evaluation, row), labels));
    text += line.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
  }
  return text;
}

}  // namespace lockstep::recipes
