#include "lockstep/recipes/classify_inputs.h"

#include "lockstep/model/label_fields.h"
#include "lockstep/recipes/run_file.h"
#include "lockstep/tensor/safetensors.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace lockstep::recipes {
namespace {

loss::Problem to_loss(data::Problem problem) {
  switch (problem) {
    case data::Problem::SingleLabel: return loss::Problem::SingleLabel;
    case data::Problem::MultiLabel: return loss::Problem::MultiLabel;
    case data::Problem::Regression: break;
  }
  return loss::Problem::Regression;
}

}  // namespace

std::string ClassifyInputs::architecture() const {
  return std::visit([](const auto& of_family) { return of_family.architecture; }, config);
}

int64_t ClassifyInputs::num_layers() const {
  return std::visit([](const auto& of_family) { return of_family.num_layers; }, config);
}

ClassifyInputs read_classify_inputs(const ClassifyOptions& options, ThreadTeam& team) {
  const fs::path folder = *options.model.model_name_or_path;
  // Opened for its checks alone: a missing or truncated file is told before the data is read.
  tensor::WeightFiles::open(folder);
  ClassifyInputs inputs{model::EncoderConfig{}, text::Tokenizer::from_folder(folder), {}};
  data::ClassifyNeeds needs;
  if (model::is_encoder_config(folder)) {
    const model::EncoderConfig config = model::read_encoder_config(folder);
    needs.vocab_size = config.vocab_size;
    needs.max_positions = config.max_document_tokens();
    inputs.config = config;
  } else {
    const model::DecoderConfig config = model::read_decoder_classifier_config(folder);
    needs.vocab_size = config.vocab_size;
    needs.max_positions = config.max_position_embeddings;
    inputs.config = config;
  }
  const model::LabelFields labels = model::read_label_fields(model::JsonFields::read(folder / "config.json"));
  needs.label_names = labels.names;
  needs.num_labels = labels.num_labels;
  needs.problem_type = labels.problem_type;
  const ClassifyWork work = work_of(options);
  needs.train = work.train;
  needs.validation = work.validation;
  needs.test = work.test;
  inputs.dataset = data::load_classify_dataset(options.data, needs, inputs.tokenizer, team);
  std::visit([&](auto& of_family) { of_family.num_labels = inputs.dataset.labels.num_labels; }, inputs.config);
  return inputs;
}

std::unique_ptr<train::ClassifyTask> make_task(const ClassifyOptions& options, const ClassifyInputs& inputs,
                                               const std::vector<data::LabelledRow>& rows, bool training,
                                               std::shared_ptr<const loss::OwnLoss> own_loss) {
  train::ClassifyTaskOptions task;
  task.compute_dtype = compute_dtype(options.train);
  task.loss.problem = to_loss(inputs.dataset.labels.problem);
  task.loss.label_smoothing = training ? options.optim.label_smoothing_factor : 0;
  task.loss.own = std::move(own_loss);
  task.dropout = training;
  task.ignore_mismatched_sizes = options.output.ignore_mismatched_sizes;
  task.seed = static_cast<uint64_t>(options.train.seed);
  return std::visit([&](const auto& config) { return train::make_classify_task(config, rows, task); }, inputs.config);
}

std::string config_changes(const ClassifyInputs& inputs) {
  const data::LabelSet& labels = inputs.dataset.labels;
  nlohmann::ordered_json changes;
  changes["architectures"] = {inputs.architecture()};
  changes["problem_type"] = data::name(labels.problem);
  nlohmann::ordered_json id2label = nlohmann::ordered_json::object(), label2id = nlohmann::ordered_json::object();
  for (int64_t id = 0; id < labels.num_labels; ++id) {
    const bool named = id < std::ssize(labels.names());
    const std::string name = named ? labels.names()[static_cast<size_t>(id)] : fmt::format("LABEL_{}", id);
    id2label[std::to_string(id)] = name;
    label2id[name] = id;
  }
  changes["id2label"] = id2label;
  changes["label2id"] = label2id;
  if (!inputs.dataset.task.empty()) changes["finetuning_task"] = inputs.dataset.task;
  return changes.dump();
}

std::string fingerprint(const data::ClassifyDataset& dataset) {
  std::string all;
  for (const auto* splits : {&dataset.train, &dataset.validation, &dataset.test}) {
    for (const data::ClassifySplit& split : *splits) all += split.name + "=" + split.report.fingerprint + " ";
  }
  return all;
}

std::string run_json(const ParsedClassify& parsed, const ClassifyInputs& inputs, const Batch& batch, const data::Order& order,
                     const RunBasis& basis, const std::optional<std::string>& loss_name) {
  nlohmann::ordered_json task = {{"architecture", inputs.architecture()},
                                 {"num_labels", inputs.dataset.labels.num_labels},
                                 {"data", fingerprint(inputs.dataset)}};
  if (loss_name) task["loss"] = *loss_name;
  return to_json({dump_classify(parsed), parsed.options.train, parsed.options.optim, batch, order, basis}, task);
}

std::vector<std::string> weight_lines(const train::ClassifyTask& task, int64_t seed, bool continues) {
  const train::ClassifyWeights& found = task.loaded();
  std::vector<std::string> lines;
  if (continues) {
    lines.push_back(fmt::format("  {:<12} all from the checkpoint", "weights"));
    return lines;
  }
  if (!found.made_new.empty()) {
    lines.push_back(fmt::format("  {:<12} {} made new from seed {}", "weights", fmt::join(found.made_new, ", "), seed));
  }
  if (!found.unused.empty()) lines.push_back(fmt::format("  {:<12} not used: {}", "", fmt::join(found.unused, ", ")));
  return lines;
}

}  // namespace lockstep::recipes
