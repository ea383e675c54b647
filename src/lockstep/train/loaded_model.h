#pragma once

#include "lockstep/train/task.h"

namespace lockstep::train {

/// A model that is not trained: its compute weights alone, whole on this process.
class LoadedModel {
 public:
  LoadedModel(const Task& task, const tensor::WeightFiles& weights, ThreadTeam& team);
  const tensor::ParamLayout& layout() const { return layout_; }
  const tensor::ParamStore& params() const { return params_; }

 private:
  tensor::ParamLayout layout_;
  tensor::ParamStore params_;
};

}  // namespace lockstep::train
