#pragma once

#include "lockstep/model/config.h"
#include "lockstep/recipes/sft_options.h"
#include "lockstep/train/memory.h"
#include "lockstep/train/update.h"

/// From options to what the trainer takes. Pure functions.
namespace lockstep::recipes {

/// a x b x c = B: samples per process and step, processes, accumulation steps.
struct Batch {
  int64_t per_device = 0, processes = 1, accumulation = 1;
  int64_t global = 0;
};
/// --global_batch_size, or the product.
Batch batch_of(const train::TrainOptions& options, int64_t processes);

data::OrderOptions order_options(const SftOptions& options, int64_t num_rows, int64_t global_batch);

/// Everything but `keep`, which needs a look at the machine.
train::TrainSetup train_setup(const SftOptions& options, const model::DecoderConfig& config, int64_t num_rows,
                              int64_t processes);

/// Steps between console lines: --logging_steps, or a share of all updates when below 1, rounded up.
int64_t logging_steps(const train::TrainOptions& options, int64_t total_updates);

/// --dtype of the saved folder; "auto" is `stored`.
at::ScalarType saved_dtype(const model::ModelOptions& options, at::ScalarType stored);

/// The output folder: --output_dir, or trainer_output as transformers names it.
std::string output_folder(const train::TrainOptions& options);

}  // namespace lockstep::recipes
