#pragma once

#include "lockstep/recipes/generate_options.h"

namespace lockstep::recipes {

/// `lockstep generate` in the program that computes: one process. Completions go to standard output, everything else to
/// standard error.
void run_generate(const GenerateOptions& options);

}  // namespace lockstep::recipes
