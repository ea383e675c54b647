#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::data {

/// What a classifier is trained, evaluated and run on. Names as in transformers' run_classification.py and run_glue.py
/// where they have one. visit() is written in the words of options/field.h (this header needs none of it).
struct ClassifyDataOptions {
  std::optional<std::string> task = {};
  std::optional<std::string> dataset_name = {};
  std::optional<std::string> train_file = {};
  std::optional<std::string> validation_file = {};
  std::optional<std::string> test_file = {};
  std::string dataset_train_split = "train";
  std::optional<std::string> dataset_validation_split = {};
  std::optional<std::string> dataset_test_split = {};
  std::optional<std::string> text_column = {};
  std::optional<std::string> text_pair_column = {};
  std::optional<std::string> label_column = {};
  std::optional<std::string> problem_type = {};
  std::optional<int64_t> max_length = {};
  std::optional<int64_t> max_seq_length = {};
  std::optional<int64_t> max_train_samples = {};
  std::optional<int64_t> max_eval_samples = {};
  std::optional<int64_t> max_predict_samples = {};
  std::string train_sampling_strategy = "random";
  bool dataloader_drop_last = false;

  std::optional<std::string> dataset_config_name = {};
  bool pad_to_max_length = true;
  bool overwrite_cache = false;
  std::optional<std::string> text_column_delimiter = {};
  int64_t dataloader_num_workers = 0;
  bool dataloader_pin_memory = true;
  bool dataloader_persistent_workers = false;
  std::optional<int64_t> dataloader_prefetch_factor = {};
  std::optional<std::string> dataloader_multiprocessing_context = {};
  bool dataloader_in_order = true;
  bool remove_unused_columns = true;
  std::optional<std::vector<std::string>> label_names = {};
  std::string length_column_name = "length";

  template <class V>
  void visit(V& v) {
    v.group("Data");
    v("task", task, "A task of GLUE: its columns, labels and metrics are known.")
        .choices({"cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli"});
    v("dataset_name", dataset_name, "A folder with the splits as JSONL, CSV or TSV files, or one file to train on.")
        .unit("path");
    v("train_file", train_file, "The file to train on, instead of the folder's.").unit("path");
    v("validation_file", validation_file, "The file to evaluate on, instead of the folder's.").unit("path");
    v("test_file", test_file, "The file to predict for, instead of the folder's.").unit("path");
    v("dataset_train_split", dataset_train_split, "Of a folder, the split to train on.");
    v("dataset_validation_split", dataset_validation_split, "Of a folder, the split to evaluate on.")
        .unset("validation; mnli: validation_matched and validation_mismatched");
    v("dataset_test_split", dataset_test_split, "Of a folder, the split to predict for.")
        .unset("test; mnli: test_matched and test_mismatched");
    v("text_column", text_column, "The column with the text.").unset("the task's, or the only one it can be");
    v("text_pair_column", text_pair_column, "The column with a second text, for pairs.")
        .unset("the task's, or the only one it can be");
    v("label_column", label_column, "The column with the label.").unset("the task's, or label or labels");
    v("problem_type", problem_type,
      "What labels mean: one class, several classes at once (lists of labels), or numbers to come close to.")
        .choices({"single_label_classification", "multi_label_classification", "regression"})
        .unset("regression if the labels are fractions, multi-label if they are lists");
    v("max_length", max_length, "Longer rows are cut to this length, the longer text of a pair first.")
        .unit("tokens").unset("what the model takes").at_least(1).at_most(1048576);
    v("max_seq_length", max_seq_length, "run_glue's name of max_length.")
        .unit("tokens").unset("as max_length").at_least(1).at_most(1048576);
    v("max_train_samples", max_train_samples, "Train on the first rows only.").unit("rows").unset("all").at_least(1);
    v("max_eval_samples", max_eval_samples, "Evaluate on the first rows only.").unit("rows").unset("all").at_least(1);
    v("max_predict_samples", max_predict_samples, "Predict for the first rows only.")
        .unit("rows").unset("all").at_least(1);
    v("train_sampling_strategy", train_sampling_strategy, "Order of the samples in an epoch.")
        .choices({"random", "sequential"})
        .refused_values({"group_by_length", "batch_rebalance"}, "is not there yet",
                        "Use random or sequential: samples are packed by length into grains anyway.");
    v("dataloader_drop_last", dataloader_drop_last, "Drop the last short batch of an epoch.");
    v("dataset_config_name", dataset_config_name, "Configuration of a data set on the Hub.")
        .refused("data sets are local files", "Give the files' folder with --dataset_name.");
    v("text_column_delimiter", text_column_delimiter, "What joins several text columns.")
        .refused("columns are not joined", "Use --text_column and --text_pair_column, or join the columns in the file.");
    v("pad_to_max_length", pad_to_max_length, "Pad all rows to the same length.").no_object("nothing is ever padded");
    v("overwrite_cache", overwrite_cache, "Prepare the rows anew.").no_object("prepared rows are not cached");
    v("dataloader_num_workers", dataloader_num_workers, "Processes that load data.").no_object(kNoLoader);
    v("dataloader_pin_memory", dataloader_pin_memory, "Pinned memory for batches.").no_object(kNoLoader);
    v("dataloader_persistent_workers", dataloader_persistent_workers, "Keep the loaders between epochs.")
        .no_object(kNoLoader);
    v("dataloader_prefetch_factor", dataloader_prefetch_factor, "Batches loaded ahead.").no_object(kNoLoader);
    v("dataloader_multiprocessing_context", dataloader_multiprocessing_context, "How loaders are started.")
        .no_object(kNoLoader);
    v("dataloader_in_order", dataloader_in_order, "Keep the order of batches.")
        .no_object("the order of samples is a function of seed, epoch and update, always kept");
    v("remove_unused_columns", remove_unused_columns, "Drop columns that the model does not take.")
        .no_object("columns that are not needed are never read");
    v("label_names", label_names, "Names of the inputs that are labels.")
        .no_object("the one label column is named by --label_column");
    v("length_column_name", length_column_name, "Column with precomputed lengths.")
        .no_object("lengths are counted from the tokens");
  }

 private:
  static constexpr const char* kNoLoader = "there are no loader processes: tokens are ready before the first update";
};

/// transformers' problem_type of a GLUE task, as glue_tasks() has it (classify_task.h needs the data library).
inline std::string glue_problem_type(const std::string& task) {
  return task == "stsb" ? "regression" : "single_label_classification";
}

/// Most tokens of a row by either name of the flag; nothing: what the model takes.
inline std::optional<int64_t> max_length(const ClassifyDataOptions& options) {
  return options.max_length ? options.max_length : options.max_seq_length;
}

}  // namespace lockstep::data
