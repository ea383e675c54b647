#pragma once

#include "lockstep/train/update.h"

#include <vector>

/// What the saved files will hold of the weights.
namespace lockstep::recipes {

/// After the last update: the masters as reading them back from `saved` gives them, so that evaluations and predictions are of
/// the saved model. Calls are collective, and nothing for float32.
class SavedWeights {
 public:
  SavedWeights(train::Trainer& trainer, at::ScalarType saved) : trainer_(trainer), saved_(saved) {}

  /// A number beyond the type's range stays: saving tells of it. `keep`: the masters themselves, for put_back().
  void round(bool keep);
  /// Undoes round(true).
  void put_back();

 private:
  train::Trainer& trainer_;
  at::ScalarType saved_;
  std::vector<std::vector<float>> kept_;      ///< as Trainer::owned_states() lists the masters
};

}  // namespace lockstep::recipes
