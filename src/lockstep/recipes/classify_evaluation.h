#pragma once

#include "lockstep/data/classify.h"
#include "lockstep/metrics/evaluation.h"
#include "lockstep/recipes/classify_cli.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/loop.h"

#include <filesystem>
#include <string>
#include <vector>

/// From an evaluation's outputs to numbers and files.
namespace lockstep::recipes {

/// All metrics that these labels have, without a prefix.
std::vector<std::string> metrics_of(const data::LabelSet& labels);
/// The metrics to report: --metric_name, the task's, or all that fit; none with --prediction_loss_only.
std::vector<std::string> wanted_metrics(const ClassifyOptions& options, const data::ClassifyDataset& dataset);

/// "<prefix>_loss", "<prefix>_<metric>" ..., "<prefix>_runtime", "<prefix>_samples_per_second"; each followed by `suffix`
/// (run_glue names mnli's second split so: "_mm"). `rows`: those that were evaluated, in the order of the data.
train::NamedMetrics named_metrics(const train::Evaluation& evaluation, const std::vector<data::LabelledRow>& rows,
                                  const data::LabelSet& labels, std::span<const std::string> wanted,
                                  const std::string& prefix, const std::string& suffix);

/// One line of JSON per row: "row" (0-based, of the split), "label" (a name, several, or numbers) and "scores" (softmax,
/// sigmoid, or absent for regression).
std::string prediction_lines(const train::Evaluation& evaluation, const std::vector<data::LabelledRow>& rows,
                             const data::LabelSet& labels);

}  // namespace lockstep::recipes
