#pragma once

#include "lockstep/options/field.h"
#include "lockstep/options/resolve.h"
#include "lockstep/recipes/classify_options.h"

/// What `lockstep classify` checks of its options together, once each is right by itself.
namespace lockstep::recipes {

/// A model and something to work on.
void require_inputs(const ClassifyOptions& options, options::Resolved& resolved);

/// Everything else: what the run does, evaluation, the best model, lengths, labels. Also expands tildes in paths.
void check_classify(ClassifyOptions& options, const options::Origins& origins, options::Problems& problems,
                    options::Words& notes);

}  // namespace lockstep::recipes
