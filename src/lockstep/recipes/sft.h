#pragma once

#include "lockstep/launch/worker_link.h"
#include "lockstep/recipes/replay_cli.h"
#include "lockstep/recipes/sft_cli.h"

#include <optional>

namespace lockstep::recipes {

/// What one worker of `lockstep sft` does, start to end, or of a replay (replay.h). Throws Error.
void run_sft(const ParsedSft& parsed, launch::WorkerLink& link, const std::optional<ReplayRequest>& replay = {});

}  // namespace lockstep::recipes
