#pragma once

#include "lockstep/launch/worker_link.h"
#include "lockstep/recipes/sft_cli.h"

namespace lockstep::recipes {

/// What one worker of `lockstep sft` does, start to end. Throws Error.
void run_sft(const ParsedSft& parsed, launch::WorkerLink& link);

}  // namespace lockstep::recipes
