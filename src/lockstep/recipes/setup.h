#pragma once

#include "lockstep/model/options.h"
#include "lockstep/optim/metric_schedule.h"
#include "lockstep/optim/options.h"
#include "lockstep/train/options.h"
#include "lockstep/train/update.h"

#include <optional>

/// From options to what the trainer takes. Pure functions.
namespace lockstep::recipes {

/// a x b x c = B: samples per process and step, processes, accumulation steps.
struct Batch {
  int64_t per_device = 0, processes = 1, accumulation = 1;
  int64_t global = 0;
};
/// --global_batch_size, or the product.
Batch batch_of(const train::TrainOptions& options, int64_t processes);

/// What the data's options say of the order of samples.
struct Sampling {
  std::string strategy = "random";     ///< or sequential
  bool drop_last = false;
};
data::OrderOptions order_options(const train::TrainOptions& options, const Sampling& sampling, int64_t num_rows,
                                 int64_t global_batch);

/// Everything but `keep`, which needs a look at the machine.
train::TrainSetup train_setup(const train::TrainOptions& options, const optim::OptimOptions& optim,
                              data::OrderOptions order);

/// The schedule that changes the rate at evaluations, where --lr_scheduler_type names such a one.
std::optional<optim::MetricSchedule> metric_schedule(const optim::OptimOptions& options);

/// bfloat16 or float32.
at::ScalarType compute_dtype(const train::TrainOptions& options);

/// --dtype of the saved folder; "auto" is `stored`.
at::ScalarType saved_dtype(const model::ModelOptions& options, at::ScalarType stored);

/// The output folder: --output_dir, or trainer_output as transformers names it.
std::string output_folder(const train::TrainOptions& options);

}  // namespace lockstep::recipes
