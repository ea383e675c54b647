#pragma once

#include "lockstep/library/classifier_impl.h"
#include "lockstep/library/dataset_impl.h"
#include "lockstep/recipes/classify_inputs.h"

#include <string>

/// From a user's data sets to what the command reads from files. Not installed.
namespace lockstep::library {

/// Rows with tokens, held against the model, with the cells of their label column. Throws Error{Data} for a row that has no tokens
/// or more than the model takes, for ids outside its vocabulary; Error{Usage} for a data set that is not tokenized.
data::ReadSplit read_dataset(const Dataset& dataset, const std::string& name, const SequenceClassifier::Impl& model);

/// The splits that are not empty, with labels as the model's options want them.
recipes::ClassifyInputs make_inputs(const SequenceClassifier::Impl& model, const Dataset& train, const Dataset& eval);

/// Another split, with the labels that `inputs` has found.
data::ClassifySplit make_split(const Dataset& dataset, const std::string& name, const SequenceClassifier::Impl& model,
                               const recipes::ClassifyInputs& inputs, data::Unlabelled unlabelled);

}  // namespace lockstep::library
