#pragma once

#include "lockstep/data/classify_options.h"
#include "lockstep/launch/options.h"
#include "lockstep/library/api.h"
#include "lockstep/model/options.h"
#include "lockstep/optim/options.h"
#include "lockstep/recipes/classify_options.h"
#include "lockstep/recipes/older_options.h"
#include "lockstep/train/checkpoint_options.h"
#include "lockstep/train/evaluation_options.h"
#include "lockstep/train/options.h"

#include <string>
#include <string_view>

namespace lockstep {

/// transformers' TrainingArguments (5.24): the fields have its names and defaults, and are those of `lockstep classify`, whose
/// help and docs/options.md explain them. docs/options.md also says which have no object here (a note tells) and which are
/// refused: a Trainer throws Error{Usage} that lists every field at fault. do_train, do_eval and do_predict are for scripts.
struct LOCKSTEP_API TrainingArguments : train::TrainOptions,
                                        optim::OptimOptions,
                                        train::EvaluationOptions,
                                        train::CheckpointOptions,
                                        recipes::OlderOptions,
                                        private model::ModelOptions,
                                        private data::ClassifyDataOptions,
                                        private launch::LaunchOptions,
                                        private recipes::ClassifyOutputOptions {
  using model::ModelOptions::dtype;                     // of the saved weights
  using model::ModelOptions::neftune_noise_alpha;
  using model::ModelOptions::use_cache;

  using data::ClassifyDataOptions::dataloader_drop_last;
  using data::ClassifyDataOptions::dataloader_in_order;
  using data::ClassifyDataOptions::dataloader_multiprocessing_context;
  using data::ClassifyDataOptions::dataloader_num_workers;
  using data::ClassifyDataOptions::dataloader_persistent_workers;
  using data::ClassifyDataOptions::dataloader_pin_memory;
  using data::ClassifyDataOptions::dataloader_prefetch_factor;
  using data::ClassifyDataOptions::label_names;
  using data::ClassifyDataOptions::length_column_name;
  using data::ClassifyDataOptions::remove_unused_columns;
  using data::ClassifyDataOptions::train_sampling_strategy;

  using launch::LaunchOptions::accelerator_config;
  using launch::LaunchOptions::ddp_backend;
  using launch::LaunchOptions::ddp_broadcast_buffers;
  using launch::LaunchOptions::ddp_bucket_cap_mb;
  using launch::LaunchOptions::ddp_find_unused_parameters;
  using launch::LaunchOptions::ddp_static_graph;
  using launch::LaunchOptions::ddp_timeout;
  using launch::LaunchOptions::deepspeed;
  using launch::LaunchOptions::fsdp;
  using launch::LaunchOptions::fsdp_config;
  using launch::LaunchOptions::local_rank;
  using launch::LaunchOptions::parallelism_config;
  using launch::LaunchOptions::start_timeout;           // ours
  using launch::LaunchOptions::threads_per_process;     // ours
  using launch::LaunchOptions::use_cpu;

  using recipes::ClassifyOutputOptions::metric_name;    // ours

  TrainingArguments();

  /// One field by its name, the value as on the command line: set("eval_strategy", "epoch"). Throws Error{Usage} for an unknown
  /// name, with the nearest ones, and for a text that is no such value.
  void set(std::string_view name, std::string_view value);

  /// The same for the words of a command line: --learning_rate 2e-5 --eval_strategy epoch, --config FILE.
  static TrainingArguments from_command_line(int argc, char** argv);

  /// As the command has them. For the library itself.
  recipes::ClassifyOptions classify_options() const;

 private:
  void take(const recipes::ClassifyOptions& options);
};

}  // namespace lockstep
