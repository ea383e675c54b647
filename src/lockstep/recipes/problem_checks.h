#pragma once

#include "lockstep/data/classify.h"
#include "lockstep/recipes/classify_cli.h"

/// What flags ask of the problem, which the rows alone may tell.
namespace lockstep::recipes {

/// Throws Error{Usage} that lists all: labels to smooth where rows have no one class, metrics that this problem does not have.
/// Before anything is trained. `own_metrics`: the program computes them, and only then are their names known.
void require_fitting_flags(const ParsedClassify& parsed, const data::ClassifyDataset& dataset, bool own_metrics = false);

}  // namespace lockstep::recipes
