#include "lockstep/recipes/setup.h"

#include "lockstep/base/error.h"
#include "lockstep/optim/rule.h"

#include <utility>

namespace lockstep::recipes {

Batch batch_of(const train::TrainOptions& options, int64_t processes) {
  Batch batch{options.per_device_train_batch_size, processes, options.gradient_accumulation_steps, 0};
  batch.global = train::samples_per_update(options, processes);
  return batch;
}

data::OrderOptions order_options(const train::TrainOptions& options, const Sampling& sampling, int64_t num_rows,
                                 int64_t global_batch) {
  data::OrderOptions order;
  order.num_rows = num_rows;
  order.global_batch = global_batch;
  order.seed = static_cast<uint64_t>(options.data_seed.value_or(options.seed));
  order.shuffle = sampling.strategy == "random";
  order.drop_last = sampling.drop_last;
  order.num_epochs = options.num_train_epochs;
  order.max_steps = options.max_steps;
  return order;
}

at::ScalarType compute_dtype(const train::TrainOptions& options) {
  return train::computes_in_bf16(options) ? at::kBFloat16 : at::kFloat;
}

train::TrainSetup train_setup(const train::TrainOptions& options, const optim::OptimOptions& optim,
                              data::OrderOptions order) {
  train::TrainSetup setup;
  setup.order = std::move(order);
  setup.cut = {.grain_tokens = options.grain_tokens, .min_grains = options.min_grains};
  setup.grain_order = train::grain_order_from_text(options.grain_order);
  setup.grain_threads = static_cast<int>(options.grain_threads);

  setup.schedule = optim::make_schedule(optim, data::Order(setup.order).total_updates());
  setup.optimizer.rule = optim::make_rule(optim);
  setup.optimizer.learning_rate = optim.learning_rate;
  setup.optimizer.weight_decay = optim.weight_decay;
  setup.max_grad_norm = optim.max_grad_norm;

  setup.reduction = options.reduction == "exact" ? tensor::Reduction::Exact : tensor::Reduction::Float32;
  setup.scale_bits = static_cast<int>(options.exact_scale);
  setup.non_finite = options.non_finite == "skip" ? train::NonFinitePolicy::Skip : train::NonFinitePolicy::Stop;
  return setup;
}

std::optional<optim::MetricSchedule> metric_schedule(const optim::OptimOptions& options) {
  const optim::Schedule::Kind kind = optim::schedule_kind_from_name(options.lr_scheduler_type);
  if (!optim::Schedule{.kind = kind}.follows_metric()) return std::nullopt;
  return optim::MetricSchedule(kind, options.lr_scheduler_kwargs, options.learning_rate);
}

at::ScalarType saved_dtype(const model::ModelOptions& options, at::ScalarType stored) {
  if (options.dtype == "auto") return stored;
  if (options.dtype == "bfloat16") return at::kBFloat16;
  if (options.dtype == "float16") return at::kHalf;
  LS_CHECK(options.dtype == "float32", "--dtype {}", options.dtype);
  return at::kFloat;
}

std::string output_folder(const train::TrainOptions& options) { return options.output_dir.value_or("trainer_output"); }

}  // namespace lockstep::recipes
