#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::train {

/// How long and how much at a time, in which numbers, what is reported. (evaluation_options.h and checkpoint_options.h have
/// the rest of what Hugging Face calls TrainingArguments.) Members are named as the
/// flags of trl; the initialisers are its defaults, except those marked ours. visit() is written in the words of
/// options/field.h.
struct TrainOptions {
  std::optional<std::string> output_dir;  ///< unset: trainer_output
  bool overwrite_output_dir = false;      ///< ours
  int64_t per_device_train_batch_size = 8;
  int64_t gradient_accumulation_steps = 1;
  std::optional<int64_t> global_batch_size;  ///< ours
  double num_train_epochs = 3;
  int64_t max_steps = -1;
  int64_t seed = 42;
  std::optional<int64_t> data_seed;

  std::optional<bool> bf16;  ///< unset: true. False: fp32
  bool fp16 = false;
  std::optional<bool> activation_checkpointing;  ///< the new name of gradient_checkpointing
  std::optional<bool> gradient_checkpointing;    ///< ours: unset = automatic (trl: true)
  std::string reduction = "exact";               ///< ours
  std::string non_finite = "stop";               ///< ours
  int64_t grain_tokens = 2048;                   ///< ours, part of the result as the seed is
  int64_t min_grains = 8;                        ///< ours, part of the result as the seed is
  int64_t grain_threads = 1;                     ///< ours, part of the result as the seed is
  int64_t exact_scale = 48;                      ///< ours, hidden
  std::string grain_order = "ascending";         ///< ours, hidden: ascending, descending or shuffled:SEED

  std::string logging_strategy = "steps";
  double logging_steps = 10;
  bool logging_first_step = false;
  std::string log_level = "passive";
  std::optional<bool> disable_tqdm;
  std::optional<std::string> report_to;
  std::optional<std::string> logging_dir;  ///< ours: transformers 5 reads $TENSORBOARD_LOGGING_DIR alone
  std::optional<int64_t> profile;          ///< ours

  bool log_on_each_node = true;
  bool logging_nan_inf_filter = true;
  std::string include_num_input_tokens_seen = "no";
  std::string log_level_replica = "warning";
  std::optional<std::string> run_name;
  std::string project = "huggingface";
  std::optional<std::string> trackio_space_id;
  std::optional<std::string> trackio_bucket_id;
  std::optional<std::string> trackio_static_space_id;

  std::optional<bool> tf32;
  std::optional<std::string> activation_checkpointing_kwargs;
  std::optional<std::string> gradient_checkpointing_kwargs;
  bool activation_offloading = false;
  bool torch_compile = false;
  std::optional<std::string> torch_compile_backend;
  std::optional<std::string> torch_compile_mode;
  bool use_liger_kernel = false;
  std::optional<std::string> liger_kernel_config;
  std::optional<int64_t> torch_empty_cache_steps;
  bool auto_find_batch_size = false;
  bool full_determinism = false;
  std::string debug;
  bool skip_memory_metrics = true;

  template <class V>
  void visit(V& v) {
    visit_run(v);
    visit_numbers(v);
    visit_logging(v);
  }

 private:
  static constexpr const char* kNoTracker = "metrics go to metrics.jsonl in the output folder and nowhere else";
  static constexpr const char* kOwnKernels = "lockstep has its own kernels";
  static constexpr const char* kRecompute = "recomputing is per block and cannot show in the result";

  template <class V>
  void visit_run(V& v) {
    v.group("Run");
    v("output_dir", output_dir, "Folder for the trained model.").unit("path").unset("trainer_output");
    v("overwrite_output_dir", overwrite_output_dir,
      "Allow an output folder that holds other things than an earlier model or run; they are kept.");
    v("per_device_train_batch_size", per_device_train_batch_size, "Samples per process and accumulation step.")
        .unit("samples").at_least(1).at_most(1048576);
    v("gradient_accumulation_steps", gradient_accumulation_steps, "Accumulation steps per update.")
        .at_least(1).at_most(1048576);
    v("global_batch_size", global_batch_size, "Samples per update, however many processes.")
        .unset("per-device batch x processes x accumulation").unit("samples").at_least(1).at_most(1073741824);
    v("num_train_epochs", num_train_epochs, "Passes over the data.").above(0);
    v("max_steps", max_steps, "Number of updates; -1: as num_train_epochs says.").unit("updates").at_least(-1);
    v("seed", seed, "Seed of the sample order and of dropout.").at_least(0).at_most(4294967295.0);
    v("data_seed", data_seed, "Seed of the sample order alone.").unset("seed").at_least(0).at_most(4294967295.0);
    v("auto_find_batch_size", auto_find_batch_size, "Halve the batch until memory suffices.")
        .no_object("memory does not grow with the batch size");
    v("full_determinism", full_determinism, "Deterministic kernels.").no_object("every run is deterministic");
    v("debug", debug, "Debugging aids of transformers.").refused("there are no such aids", "Leave it out.");
  }

  template <class V>
  void visit_numbers(V& v) {
    v.group("Numbers and memory");
    v("bf16", bf16, "Compute in bfloat16 with float32 masters; false: all in float32.").unset("true");
    v("fp16", fp16, "Compute in float16.").refused("float16 is not there yet", "Use --bf16 true or --bf16 false.");
    v("gradient_checkpointing", gradient_checkpointing,
      "Recompute activations: those of every block (true) or none (false).").unset("what memory demands");
    v("activation_checkpointing", activation_checkpointing, "The new name of gradient_checkpointing.")
        .unset("as gradient_checkpointing");
    v("reduction", reduction, "How gradients are added. exact: the same bits in every layout; float32: plain sums.")
        .choices({"exact", "float32"});
    v("non_finite", non_finite, "On NaN or infinity: stop with an error, or skip that update.")
        .choices({"stop", "skip"});
    v("grain_tokens", grain_tokens, "Size of the pieces that are computed alone; part of the result as the seed is.")
        .unit("tokens").at_least(1).at_most(1048576);
    v("min_grains", min_grains, "Fewest pieces per update while samples suffice; part of the result as the seed is.")
        .at_least(1).at_most(1048576);
    v("grain_threads", grain_threads,
      "Threads that share one piece, for machines with more cores than an update has pieces; part of the result as the seed is.")
        .at_least(1).at_most(64);
    v("exact_scale", exact_scale, "Fraction bits of the exact sums at the start of a run.")
        .at_least(0).at_most(62).hidden();
    v("grain_order", grain_order, "Order in which a process computes its grains.")
        .pattern("ascending|descending|shuffled:[0-9]{1,9}", "ascending, descending or shuffled:SEED").hidden();
    v("gradient_checkpointing_kwargs", gradient_checkpointing_kwargs, "Settings of recomputing.")
        .json().no_object(kRecompute);
    v("activation_checkpointing_kwargs", activation_checkpointing_kwargs, "Settings of recomputing.")
        .json().no_object(kRecompute);
    v("activation_offloading", activation_offloading, "Keep activations in host memory.")
        .refused("offloading is not there yet", "Use --gradient_checkpointing true.");
    v("tf32", tf32, "TensorFloat-32 products.").no_object("it is a mode of GPUs");
    v("torch_compile", torch_compile, "Compile the model.").no_object(kOwnKernels);
    v("torch_compile_backend", torch_compile_backend, "Which compiler.").no_object(kOwnKernels);
    v("torch_compile_mode", torch_compile_mode, "How to compile.").no_object(kOwnKernels);
    v("use_liger_kernel", use_liger_kernel, "Liger's kernels.").no_object(kOwnKernels);
    v("liger_kernel_config", liger_kernel_config, "Which of Liger's kernels.").json().no_object(kOwnKernels);
    v("torch_empty_cache_steps", torch_empty_cache_steps, "Updates between emptyings of the GPU's cache.")
        .no_object("there is no such cache");
  }

  template <class V>
  void visit_logging(V& v) {
    v.group("Logging");
    v("logging_strategy", logging_strategy, "When progress is printed; metrics.jsonl has every update.")
        .choices({"no", "steps", "epoch"});
    v("logging_steps", logging_steps, "Updates between printed lines; below 1 a share of all updates.")
        .unit("updates").above(0);
    v("logging_first_step", logging_first_step, "Print the first update too.");
    v("log_level", log_level, "What is printed; passive is info.")
        .choices({"debug", "info", "warning", "error", "critical", "passive"});
    v("disable_tqdm", disable_tqdm, "No progress bar.").unset("true unless the output is a terminal");
    v("report_to", report_to, "tensorboard: also write TensorBoard's event files into the output folder.")
        .unset("none, or tensorboard where --logging_dir is given")
        .choices({"none", "tensorboard", "all"})
        .refused_values({"azure_ml", "clearml", "codecarbon", "comet_ml", "dagshub", "dvclive", "flyte", "mlflow", "neptune",
                         "swanlab", "trackio", "wandb"},
                        "lockstep sends nothing anywhere", "Use tensorboard or none; metrics.jsonl has every update.");
    v("logging_dir", logging_dir, "Folder of the TensorBoard files; giving it asks for them.")
        .unit("path").unset("$TENSORBOARD_LOGGING_DIR, or OUTPUT_DIR/runs/DATE_HOST");
    v("profile", profile,
      "Record what each thread does in so many updates, from the third that this start runs (fewer where it runs fewer): a table "
      "on the terminal, OUTPUT_DIR/profile/trace.json for ui.perfetto.dev. Cannot show in the result.")
        .unset("off").unit("updates").at_least(1).at_most(1000);
    v("log_on_each_node", log_on_each_node, "Print on every machine.").no_object("the first process alone prints");
    v("logging_nan_inf_filter", logging_nan_inf_filter, "Hide NaN and infinite losses.")
        .no_object("such a loss is never hidden (see --non_finite)");
    v("include_num_input_tokens_seen", include_num_input_tokens_seen, "Count tokens.")
        .no_object("metrics.jsonl always has num_tokens");
    v("log_level_replica", log_level_replica, "What other processes print.")
        .no_object("other processes print warnings and errors");
    v("skip_memory_metrics", skip_memory_metrics, "No memory in the metrics.")
        .no_object("metrics.jsonl always has memory");
    v("run_name", run_name, "Name of the run for trackers.").no_object(kNoTracker);
    v("project", project, "Name of the project for trackers.").no_object(kNoTracker);
    v("trackio_space_id", trackio_space_id, "Where trackio runs.").no_object(kNoTracker);
    v("trackio_bucket_id", trackio_bucket_id, "Where trackio stores.").no_object(kNoTracker);
    v("trackio_static_space_id", trackio_static_space_id, "Where trackio publishes.").no_object(kNoTracker);
  }
};

/// True: the products are computed in bfloat16; false: all in float32.
inline bool computes_in_bf16(const TrainOptions& options) { return options.bf16.value_or(true); }

/// Recompute every block (true), none (false), or as memory demands (no value), by either name of the flag.
inline std::optional<bool> recompute(const TrainOptions& options) {
  return options.activation_checkpointing ? options.activation_checkpointing : options.gradient_checkpointing;
}

/// Samples per update with `num_workers` processes.
inline int64_t samples_per_update(const TrainOptions& options, int64_t num_workers) {
  const int64_t product = options.per_device_train_batch_size * num_workers * options.gradient_accumulation_steps;
  return options.global_batch_size.value_or(product);
}

}  // namespace lockstep::train
