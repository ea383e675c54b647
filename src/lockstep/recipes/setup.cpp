#include "lockstep/recipes/sft_setup.h"

#include "lockstep/base/error.h"

#include <algorithm>
#include <cmath>

namespace lockstep::recipes {

Batch batch_of(const train::TrainOptions& options, int64_t processes) {
  Batch batch{options.per_device_train_batch_size, processes, options.gradient_accumulation_steps, 0};
  batch.global = train::samples_per_update(options, processes);
  return batch;
}

data::OrderOptions order_options(const SftOptions& options, int64_t num_rows, int64_t global_batch) {
  data::OrderOptions order;
  order.num_rows = num_rows;
  order.global_batch = global_batch;
  order.seed = static_cast<uint64_t>(options.train.data_seed.value_or(options.train.seed));
  order.shuffle = options.data.train_sampling_strategy == "random";
  order.drop_last = options.data.dataloader_drop_last;
  order.num_epochs = options.train.num_train_epochs;
  order.max_steps = options.train.max_steps;
  return order;
}

train::TrainSetup train_setup(const SftOptions& options, const model::DecoderConfig& config, int64_t num_rows,
                              int64_t processes) {
  train::TrainSetup setup;
  setup.config = config;
  setup.decoder = {.attention_dropout = config.attention_dropout, .seed = static_cast<uint64_t>(options.train.seed)};
  setup.compute_dtype = train::computes_in_bf16(options.train) ? at::kBFloat16 : at::kFloat;
  setup.order = order_options(options, num_rows, batch_of(options.train, processes).global);
  setup.cut = {.grain_tokens = options.train.grain_tokens, .min_grains = options.train.min_grains};
  setup.grain_order = train::grain_order_from_text(options.train.grain_order);

  const int64_t total = data::Order(setup.order).total_updates();
  setup.schedule.kind = optim::schedule_kind_from_name(options.optim.lr_scheduler_type);
  setup.schedule.warmup_updates = optim::warmup_updates(options.optim.warmup_steps, total);
  setup.schedule.total_updates = total;
  setup.adamw.learning_rate = options.optim.learning_rate;
  setup.adamw.beta1 = options.optim.adam_beta1;
  setup.adamw.beta2 = options.optim.adam_beta2;
  setup.adamw.epsilon = options.optim.adam_epsilon;
  setup.adamw.weight_decay = options.optim.weight_decay;
  setup.max_grad_norm = options.optim.max_grad_norm;

  setup.reduction = options.train.reduction == "exact" ? tensor::Reduction::Exact : tensor::Reduction::Float32;
  setup.scale_bits = static_cast<int>(options.train.exact_scale);
  setup.non_finite =
      options.train.non_finite == "skip" ? train::NonFinitePolicy::Skip : train::NonFinitePolicy::Stop;
  return setup;
}

int64_t logging_steps(const train::TrainOptions& options, int64_t total_updates) {
  const double steps = options.logging_steps;
  if (steps >= 1) return static_cast<int64_t>(steps);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(steps * static_cast<double>(total_updates))));
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
