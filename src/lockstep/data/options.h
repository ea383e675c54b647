#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::data {

/// What is read and how rows become token sequences. Members are named as the flags of trl; the initialisers are
/// its defaults. visit() is written in the words of options/field.h (this header needs none of it).
struct DataOptions {
  std::optional<std::string> dataset_name;
  std::string dataset_train_split = "train";
  std::string dataset_text_field = "text";
  std::optional<int64_t> max_length = 1024;
  std::string truncation_mode = "keep_start";
  std::optional<bool> completion_only_loss;
  bool assistant_only_loss = false;
  std::optional<std::string> chat_template_path;
  std::optional<std::string> eos_token;
  std::optional<std::string> pad_token;
  std::string train_sampling_strategy = "random";
  bool shuffle_dataset = false;
  bool packing = false;
  std::string packing_strategy = "bfd";
  bool padding_free = false;
  std::optional<std::string> pad_to_multiple_of = "auto";
  std::optional<bool> eval_packing;

  std::optional<std::string> dataset_config;
  std::string dataset_test_split = "test";
  bool dataset_streaming = false;
  std::optional<std::string> dataset_kwargs;
  std::optional<int64_t> dataset_num_proc;
  std::vector<std::string> datasets;
  bool streaming = false;
  std::optional<double> test_split_size;
  bool ignore_bias_buffers = false;
  std::string token_cache = "auto";

  bool dataloader_drop_last = false;
  int64_t dataloader_num_workers = 0;
  bool dataloader_pin_memory = true;
  bool dataloader_persistent_workers = false;
  std::optional<int64_t> dataloader_prefetch_factor;
  std::optional<std::string> dataloader_multiprocessing_context;
  bool dataloader_in_order = true;
  bool remove_unused_columns = true;
  std::optional<std::vector<std::string>> label_names;
  std::string length_column_name = "length";

  template <class V>
  void visit(V& v) {
    v.group("Data");
    v("dataset_name", dataset_name, "A file (JSON lines, CSV, TSV, text, Parquet, Arrow; gzip or zstd), a "
      "pattern of files, a folder with splits, or one that datasets' save_to_disk wrote.").unit("path");
    v("dataset_train_split", dataset_train_split, "Of a folder, the split to train on.");
    v("dataset_text_field", dataset_text_field, "The column that holds the text of plain-text rows.");
    v("max_length", max_length, "Longer samples are cut to this length.").unit("tokens").unset("no cut").at_least(1);
    v("truncation_mode", truncation_mode, "Which end of a sample that is too long stays.")
        .choices({"keep_start", "keep_end"});
    v("completion_only_loss", completion_only_loss, "Train on the completion alone, not on the prompt.")
        .unset("true if the rows have one");
    v("train_sampling_strategy", train_sampling_strategy, "Order of the samples in an epoch.")
        .choices({"random", "sequential"})
        .refused_values({"group_by_length", "batch_rebalance"}, "is not there yet",
                        "Use random or sequential: samples are packed by length into grains anyway.");
    v("chat_template_path", chat_template_path, "A Jinja file with the chat template.")
        .unit("path").unset("the model's own");
    v("eos_token", eos_token, "The token that ends a sample that is no chat.").unset("the tokenizer's own");
    v("assistant_only_loss", assistant_only_loss, "Train on the assistant's turns alone. The chat template must mark them with "
      "{% generation %}.");
    v("shuffle_dataset", shuffle_dataset, "Shuffle the rows once before training.")
        .refused("the extra shuffle is not there yet",
                 "Leave it out: the order is drawn anew in every epoch (--train_sampling_strategy random).");
    v("packing", packing, "Join samples into rows of max_length; each keeps its own attention and positions. A packed row is "
      "one sample of a batch.");
    v("packing_strategy", packing_strategy, "How --packing joins: best fit decreasing, cutting what is too long (bfd) or "
      "splitting it (bfd_split), or one stream cut every max_length tokens (wrapped: attention crosses samples).")
        .choices({"bfd", "bfd_split", "wrapped"});
    v("padding_free", padding_free, "Compute without padding.").no_object("nothing is ever padded");
    v("pad_to_multiple_of", pad_to_multiple_of, "Pad sequences to a multiple.").no_object("nothing is ever padded");
    v("pad_token", pad_token, "The token used for padding.").no_object("nothing is ever padded");
    v("eval_packing", eval_packing, "The same for the evaluation set.").unset("as --packing");
    v("dataset_config", dataset_config, "Configuration of a data set on the Hub.")
        .refused("data sets are local files", "Give the file itself with --dataset_name.");
    v("dataset_test_split", dataset_test_split, "Of a folder, the split to evaluate on (see --eval_strategy).");
    v("dataset_streaming", dataset_streaming, "Read the rows in their order, and only those that --max_steps needs.");
    v("dataset_kwargs", dataset_kwargs, "Extra arguments of the data preparation.")
        .json()
        .refused("the preparation has no further arguments", "Leave it out.");
    v("dataset_num_proc", dataset_num_proc, "Processes that prepare the data.")
        .no_object("the rows are prepared by the training processes themselves");
    v("token_cache", token_cache, "Folder that keeps the tokens for the next start; auto: ~/.cache/lockstep/tokens, for data of 8 MiB "
      "and more; none: they are made anew.").unit("path");
    v("datasets", datasets, "A mixture instead of --dataset_name: mappings with path, and data_dir, data_files, split, columns, "
      "fraction (share of the mixture; for all or none).").json();
    v("streaming", streaming, "The same as --dataset_streaming, for a mixture.");
    v("test_split_size", test_split_size, "Share of a mixture that is set aside.")
        .refused("rows are not set aside", "Put rows for the evaluation into a file of their own: FOLDER/test.jsonl.");
    v("ignore_bias_buffers", ignore_bias_buffers, "A workaround for DDP.").no_object("DDP is not used");
    v("dataloader_drop_last", dataloader_drop_last, "Drop the last short batch of an epoch.");
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
    v("label_names", label_names, "Columns that hold labels.").no_object("labels are made from the text");
    v("length_column_name", length_column_name, "Column with precomputed lengths.")
        .no_object("lengths are counted from the tokens");
  }

 private:
  static constexpr const char* kNoLoader = "there are no loader processes: tokens are ready before the first update";
};

}  // namespace lockstep::data
