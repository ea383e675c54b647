#pragma once

#include "lockstep/recipes/classify_options.h"

#include <optional>
#include <string>

namespace lockstep::recipes {

/// --predictions, or its default in the output folder.
std::string predictions_path(const ClassifyOptions& options);

/// Why predictions cannot be written there without loss: what is there is no predictions file of ours, or the run reads it or
/// writes it itself. Nothing for a good place. `options`: with expanded paths.
std::optional<std::string> predictions_problem(const ClassifyOptions& options);

}  // namespace lockstep::recipes
