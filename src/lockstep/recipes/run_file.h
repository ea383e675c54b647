#pragma once

#include "lockstep/data/order.h"
#include "lockstep/optim/options.h"
#include "lockstep/recipes/run_basis.h"
#include "lockstep/recipes/setup.h"
#include "lockstep/train/options.h"

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace lockstep::recipes {

/// run.json: the command's options with their origins, and what defines the run's result.
struct RunFile {
  const std::string& options;           ///< JSON, as dump_sft() and dump_classify() give it
  const train::TrainOptions& train;
  const optim::OptimOptions& optim;
  const Batch& batch;
  const data::Order& order;
  const RunBasis& basis;
};

/// `task`: an object with what the task adds to the definition (architecture, data ...). A run is continued only where all of
/// "run" is the same.
std::string to_json(const RunFile& run, const nlohmann::ordered_json& task);

}  // namespace lockstep::recipes
