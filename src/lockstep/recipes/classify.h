#pragma once

#include "lockstep/launch/worker_link.h"
#include "lockstep/recipes/classify_cli.h"
#include "lockstep/recipes/replay_cli.h"

#include <optional>

namespace lockstep::recipes {

/// What a worker of `lockstep classify` does, from options to the saved model, the evaluation and the predictions; or a replay of
/// updates of such a run (replay.h).
void run_classify(const ParsedClassify& parsed, launch::WorkerLink& link,
                  const std::optional<ReplayRequest>& replay = {});

}  // namespace lockstep::recipes
