#include "lockstep/data/classify.h"

#include "lockstep/base/error.h"
#include "lockstep/data/classify_split.h"
#include "lockstep/data/dataset_files.h"
#include "lockstep/text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

namespace lockstep::data {
namespace {

/// A kind of split: where its files come from, and the flags that say so.
struct SplitWish {
  std::string_view kind;                          ///< "train", "validation", "test"
  Wanted wanted = Wanted::No;
  const std::optional<std::string>& file;         ///< --train_file ...
  std::optional<std::string> split;               ///< --dataset_train_split ...
  std::vector<std::string> usual;                 ///< the splits meant without that flag
  std::optional<int64_t> max_rows;
};

std::vector<SplitSource> sources_of(const SplitWish& wish, const ClassifyDataOptions& options) {
  if (wish.wanted == Wanted::No) return {};
  if (wish.file) {
    const std::string flag = fmt::format("--{}_file", wish.kind);
    return {{std::string(wish.kind), {table_file(*wish.file, flag)}, wish.max_rows}};
  }
  std::vector<SplitSource> sources;
  const auto names = wish.split ? std::vector{*wish.split} : wish.usual;
  if (options.dataset_name) {
    for (const std::string& name : names) {
      auto files = table_files(*options.dataset_name, name);
      if (!files.empty()) sources.push_back({name, std::move(files), wish.max_rows});
    }
  }
  // A flag that names a split means it.
  const bool is_required = wish.wanted == Wanted::Yes || wish.split;
  if (!sources.empty() || !is_required) return sources;
  if (!options.dataset_name) {
    throw Error::usage("there is no data to {}: give a file with --{}_file, or a folder with --dataset_name.",
                       wish.kind == "train" ? "train on" : wish.kind == "test" ? "predict for" : "evaluate on", wish.kind);
  }
  throw Error::data("--dataset_name {}: none of its files belongs to the split '{}' (found: {}). Call one {}.jsonl, .csv or "
                    ".tsv, or give a file with --{}_file.", *options.dataset_name, names.front(),
                    table_files_there(*options.dataset_name), names.front(), wish.kind);
}

std::optional<int64_t> limit_of_model(const ClassifyNeeds& needs, const text::Tokenizer& tokenizer) {
  const auto of_tokenizer = tokenizer.model_max_length();
  if (!needs.max_positions || !of_tokenizer) return needs.max_positions ? needs.max_positions : of_tokenizer;
  return std::min(*needs.max_positions, *of_tokenizer);
}

std::optional<int64_t> choose_length(const ClassifyDataOptions& options, const ClassifyNeeds& needs, const Columns& columns,
                                     const text::Tokenizer& tokenizer, std::vector<std::string>& notes) {
  const auto wish = max_length(options);
  const auto limit = limit_of_model(needs, tokenizer);
  std::optional<int64_t> length = wish ? wish : limit;
  if (wish && limit && *wish > *limit) {
    notes.push_back(fmt::format("max_length = {} is more than the model takes: rows are cut to {} tokens", *wish, *limit));
    length = limit;
  }
  const auto num_special = static_cast<int64_t>(
      (columns.pair ? tokenizer.encode_pair("", "") : tokenizer.encode("")).ids.size());
  if (length && *length <= num_special) {
    throw Error::usage("--max_length {} leaves no room for text: {} tokens of a row are special ones. Try --max_length {}.",
                       *length, num_special, limit.value_or(128));
  }
  return length;
}

class Loader {
 public:
  Loader(const ClassifyDataOptions& options, const ClassifyNeeds& needs, const text::Tokenizer& tokenizer,
         ThreadTeam& team)
      : options_(options), needs_(needs), tokenizer_(tokenizer), team_(team) {
    if (options.task) task_ = find_glue_task(*options.task);
    LS_CHECK(!options.task || task_ != nullptr, "--task {}", *options.task);
  }

  ClassifyDataset load() {
    if (task_ != nullptr) dataset_.task = task_->name;
    const auto train = sources_of({"train", needs_.train, options_.train_file, options_.dataset_train_split, {},
                                   options_.max_train_samples}, options_);
    const auto validation = sources_of({"validation", needs_.validation, options_.validation_file,
                                        options_.dataset_validation_split,
                                        task_ ? task_->validation_splits : std::vector<std::string>{"validation"},
                                        options_.max_eval_samples}, options_);
    const auto test = sources_of({"test", needs_.test, options_.test_file, options_.dataset_test_split,
                                  task_ ? task_->test_splits : std::vector<std::string>{"test"},
                                  options_.max_predict_samples}, options_);
    decide_columns(train, validation, test);

    std::vector<ReadSplit> training = read_all(train);
    if (!training.empty()) dataset_.labels = find_labels(training.front().labels, options_, task_, model_names());
    finish(std::move(training), Unlabelled::Refused, dataset_.train);
    std::vector<ReadSplit> evaluated = read_all(validation), predicted = read_all(test);
    if (dataset_.train.empty()) dataset_.labels = labels_of_use(evaluated, predicted);
    finish(std::move(evaluated), Unlabelled::Refused, dataset_.validation);
    finish(std::move(predicted), Unlabelled::Allowed, dataset_.test);
    for (const std::string& note : dataset_.labels.notes) dataset_.notes.push_back(note);
    return std::move(dataset_);
  }

 private:
  std::span<const std::string> model_names() const {
    return are_placeholders(needs_.label_names) ? std::span<const std::string>() : needs_.label_names;
  }

  LabelSet labels_of_use(const std::vector<ReadSplit>& evaluated, const std::vector<ReadSplit>& predicted) const {
    const std::vector<ReadSplit>& used = evaluated.empty() ? predicted : evaluated;
    return labels_without_training(options_, task_, {needs_.label_names, needs_.num_labels, needs_.problem_type},
                                   used.empty() ? nullptr : &used.front().labels);
  }

  /// By the first split there is; the others are held to it row by row.
  void decide_columns(const std::vector<SplitSource>& train, const std::vector<SplitSource>& validation,
                      const std::vector<SplitSource>& test) {
    for (const auto* sources : {&train, &validation, &test}) {
      if (sources->empty()) continue;
      dataset_.columns = columns_of(sources->front(), options_, task_, sources != &test);
      dataset_.max_length = choose_length(options_, needs_, dataset_.columns, tokenizer_, dataset_.notes);
      return;
    }
    throw Error::usage("there is nothing to do: no data to train, evaluate or predict on. Give --dataset_name or "
                       "--train_file, --validation_file, --test_file.");
  }

  /// GLUE's own test files have other columns than its training files (mrpc) or other names (cola).
  SplitFormat format_of(const SplitSource& source) const {
    SplitFormat format{task_, dataset_.columns, dataset_.max_length, needs_.vocab_size};
    if (task_ != nullptr) format.columns = columns_of(source, options_, task_, /*needs_label=*/false);
    return format;
  }

  std::vector<ReadSplit> read_all(const std::vector<SplitSource>& sources) {
    std::vector<ReadSplit> splits;
    for (const SplitSource& source : sources) {
      splits.push_back(read_split(source, format_of(source), tokenizer_, team_));
      if (splits.back().labels.name.empty()) splits.back().labels.name = dataset_.columns.label.value_or("label");
    }
    return splits;
  }

  void finish(std::vector<ReadSplit> splits, Unlabelled unlabelled, std::vector<ClassifySplit>& out) {
    for (ReadSplit& read : splits) {
      set_labels(read, dataset_.labels, unlabelled, tokenizer_);
      out.push_back(std::move(read.split));
    }
  }

  const ClassifyDataOptions& options_;
  const ClassifyNeeds& needs_;
  const text::Tokenizer& tokenizer_;
  ThreadTeam& team_;
  const GlueTask* task_ = nullptr;
  ClassifyDataset dataset_;
};

}  // namespace

ClassifyDataset load_classify_dataset(const ClassifyDataOptions& options, const ClassifyNeeds& needs,
                                      const text::Tokenizer& tokenizer, ThreadTeam& team) {
  return Loader(options, needs, tokenizer, team).load();
}

}  // namespace lockstep::data
