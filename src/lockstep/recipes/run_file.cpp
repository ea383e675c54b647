#include "lockstep/recipes/run_file.h"

#include <nlohmann/json.hpp>

namespace lockstep::recipes {

std::string to_json(const RunFile& run, const nlohmann::ordered_json& task) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(run.options);
  json["run"] = {{"global_batch_size", run.batch.global},
                 {"seed", run.train.seed},
                 {"data_seed", run.train.data_seed.value_or(run.train.seed)},
                 {"bf16", train::computes_in_bf16(run.train)},
                 {"reduction", run.train.reduction},
                 {"grain_tokens", run.train.grain_tokens},
                 {"min_grains", run.train.min_grains},
                 {"optim", run.optim.optim},
                 {"updates_per_epoch", run.order.updates_per_epoch()}};
  // As an addition, so that runs from before there was a choice can be resumed.
  if (run.train.grain_threads != 1) json["run"]["grain_threads"] = run.train.grain_threads;
  json["run"].update(task);
  json["weights"] = run.basis.weights;
  for (const auto& [name, hash] : run.basis.kernels) json["kernels"][name] = hash;
  json["processes"] = run.batch.processes;
  json["total_updates"] = run.order.total_updates();
  return json.dump(2) + "\n";
}

}  // namespace lockstep::recipes
