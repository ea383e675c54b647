#pragma once

#include "lockstep/launch/worker_link.h"
#include "lockstep/recipes/classify_cli.h"

namespace lockstep::recipes {

/// What a worker of `lockstep classify` does, from options to the saved model, the evaluation and the predictions.
void run_classify(const ParsedClassify& parsed, launch::WorkerLink& link);

}  // namespace lockstep::recipes
