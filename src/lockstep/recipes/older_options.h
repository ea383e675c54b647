#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::recipes {

/// Names that transformers and its example scripts had or have for what lockstep calls otherwise, or that lost their object.
/// apply_older_names() (classify_cli.h) moves the values of the former to where they belong.
struct OlderOptions {
  std::optional<std::string> evaluation_strategy;
  std::optional<double> warmup_ratio;
  std::optional<int64_t> per_gpu_train_batch_size;
  std::optional<int64_t> per_gpu_eval_batch_size;
  std::optional<bool> evaluate_during_training;
  std::optional<bool> adafactor;
  std::optional<std::string> task_name;
  std::optional<std::string> text_column_names;
  std::optional<std::string> label_column_name;
  std::optional<bool> do_regression;
  std::optional<std::string> train_split_name;
  std::optional<std::string> validation_split_name;
  std::optional<std::string> test_split_name;
  std::optional<std::string> torch_dtype;

  bool group_by_length = false;
  bool no_cuda = false;
  bool use_mps_device = false;
  bool use_ipex = false;
  bool jit_mode_eval = false;
  bool save_safetensors = true;
  std::optional<std::string> half_precision_backend;
  std::optional<std::string> fp16_backend;
  std::optional<std::string> fp16_opt_level;
  bool include_inputs_for_metrics = false;
  bool include_tokens_per_second = false;
  bool use_legacy_prediction_loop = false;
  std::optional<std::string> ray_scope;
  std::optional<bool> dispatch_batches;
  std::optional<bool> split_batches;
  std::optional<int64_t> tpu_num_cores;
  bool tpu_metrics_debug = false;
  std::optional<int64_t> past_index;
  std::optional<std::string> sharded_ddp;
  std::optional<std::string> push_to_hub_model_id;
  std::optional<std::string> push_to_hub_organization;
  std::optional<std::string> push_to_hub_token;
  std::optional<std::string> config_name;
  std::optional<std::string> tokenizer_name;
  std::optional<std::string> cache_dir;
  bool use_fast_tokenizer = true;
  std::optional<std::string> token;
  bool shuffle_train_dataset = false;
  std::optional<int64_t> shuffle_seed;
  std::optional<std::string> remove_splits;
  std::optional<std::string> remove_columns;

  template <class V>
  void visit(V& v) {
    v.group("Older names");
    v("evaluation_strategy", evaluation_strategy, "The older name of eval_strategy.").choices({"no", "steps", "epoch"});
    v("warmup_ratio", warmup_ratio, "Older: a share of all updates; warmup_steps takes one too.").at_least(0).at_most(1);
    v("per_gpu_train_batch_size", per_gpu_train_batch_size, "The older name of per_device_train_batch_size.")
        .unit("samples").at_least(1).at_most(1048576);
    v("per_gpu_eval_batch_size", per_gpu_eval_batch_size, "The older name of per_device_eval_batch_size.").at_least(1)
        .no_object("rows are evaluated in pieces that the data alone decides");
    v("evaluate_during_training", evaluate_during_training, "Older: eval_strategy steps.");
    v("adafactor", adafactor, "Older: optim adafactor.");
    v("task_name", task_name, "run_glue's name of task.")
        .choices({"cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb", "wnli"});
    v("text_column_names", text_column_names, "run_classification's name of text_column; one column.")
        .pattern("[^,]+", "one column; for pairs use --text_column and --text_pair_column");
    v("label_column_name", label_column_name, "run_classification's name of label_column.");
    v("do_regression", do_regression, "run_classification's word for problem_type regression.");
    v("train_split_name", train_split_name, "run_classification's name of dataset_train_split.");
    v("validation_split_name", validation_split_name, "run_classification's name of dataset_validation_split.");
    v("test_split_name", test_split_name, "run_classification's name of dataset_test_split.");
    v("torch_dtype", torch_dtype, "The older name of dtype.").choices({"auto", "float32", "bfloat16", "float16"});
    v("group_by_length", group_by_length, "Batches of like length.")
        .no_object("samples are packed by length into grains anyway");
    v("no_cuda", no_cuda, "Train on the CPU.").no_object(kCpu);
    v("use_mps_device", use_mps_device, "Train on Apple's GPU.").refused(kCpu, "Leave it out.");
    v("use_ipex", use_ipex, "Intel's kernels.").no_object(kOwnKernels);
    v("jit_mode_eval", jit_mode_eval, "Evaluate a traced model.").no_object(kOwnKernels);
    v("save_safetensors", save_safetensors, "Weights as safetensors.")
        .refused("weights are always saved as safetensors", "Leave it out.");
    v("half_precision_backend", half_precision_backend, "Who computes in half precision.").no_object(kOwnKernels);
    v("fp16_backend", fp16_backend, "Who computes in half precision.").no_object(kOwnKernels);
    v("fp16_opt_level", fp16_opt_level, "Apex's level.").no_object("Apex is not used");
    v("include_inputs_for_metrics", include_inputs_for_metrics, "Inputs given to metrics.")
        .no_object("the metrics need outputs and labels alone");
    v("include_tokens_per_second", include_tokens_per_second, "Tokens per second in the metrics.")
        .no_object("metrics.jsonl always has them");
    v("use_legacy_prediction_loop", use_legacy_prediction_loop, "How outputs are gathered.")
        .no_object("outputs are summed up row by row");
    v("past_index", past_index, "Outputs that are fed back.").no_object("no model here feeds outputs back");
    v("ray_scope", ray_scope, "Search over options by Ray.").no_object("options are not searched over");
    v("dispatch_batches", dispatch_batches, "Who loads batches.").no_object(kOneLoader);
    v("split_batches", split_batches, "Whose size the batch size is.")
        .refused("the batch size is per process", "Leave it out, or say --global_batch_size.");
    v("tpu_num_cores", tpu_num_cores, "Cores of a TPU.").no_object(kCpu);
    v("tpu_metrics_debug", tpu_metrics_debug, "Metrics of a TPU.").no_object(kCpu);
    v("sharded_ddp", sharded_ddp, "FairScale's sharding.")
        .accepted({""})
        .refused("FairScale is not used", "Leave it out: optimizer state is sharded over the processes by itself.");
    v("push_to_hub_model_id", push_to_hub_model_id, "Name of the upload.").no_object(kNoHub);
    v("push_to_hub_organization", push_to_hub_organization, "Owner of the upload.").no_object(kNoHub);
    v("push_to_hub_token", push_to_hub_token, "Token for the upload.").secret().no_object(kNoHub);
    v("config_name", config_name, "Another config.json.")
        .refused("the model's folder holds its config.json", "Give the model's folder with --model_name_or_path.");
    v("tokenizer_name", tokenizer_name, "Another tokenizer.")
        .refused("the model's folder holds its tokenizer", "Put tokenizer.json into the folder of --model_name_or_path.");
    v("cache_dir", cache_dir, "Where downloads are kept.").no_object("nothing is downloaded");
    v("use_fast_tokenizer", use_fast_tokenizer, "The tokenizers library.")
        .refused("there is only the tokenizers library", "Leave it out.");
    v("token", token, "Token for downloads.").secret().no_object("nothing is downloaded");
    v("shuffle_train_dataset", shuffle_train_dataset, "Shuffle the rows once before training.")
        .refused("the extra shuffle is not there",
                 "Leave it out: the order is drawn anew in every epoch (--train_sampling_strategy random).");
    v("shuffle_seed", shuffle_seed, "Seed of that shuffle.").no_object("there is no extra shuffle; see --data_seed");
    v("remove_splits", remove_splits, "Splits to leave out.").no_object("splits that are not needed are never read");
    v("remove_columns", remove_columns, "Columns to leave out.").no_object("columns that are not needed are never read");
  }

 private:
  static constexpr const char* kCpu = "the CPU is what lockstep computes on so far";
  static constexpr const char* kOwnKernels = "lockstep has its own kernels";
  static constexpr const char* kOneLoader = "there are no loader processes: tokens are ready before the first update";
  static constexpr const char* kNoHub = "lockstep sends nothing anywhere";
};

}  // namespace lockstep::recipes
