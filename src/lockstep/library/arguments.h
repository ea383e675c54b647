#pragma once

#include "lockstep/library/training_arguments.h"
#include "lockstep/recipes/classify_cli.h"

#include <string>

/// From a user's TrainingArguments to what the command would have parsed. Not installed.
namespace lockstep::library {

/// What the arguments are held against.
struct ArgumentPlaces {
  std::string model;                    ///< folder
  std::string train, eval;              ///< where the rows came from, for run.json; empty: no such rows
  int processes = 1;                    ///< of the whole job
};

/// Throws Error{Usage} that lists all fields at fault, in the words of the command.
recipes::ParsedClassify resolve_arguments(const TrainingArguments& arguments, const ArgumentPlaces& places);

}  // namespace lockstep::library
