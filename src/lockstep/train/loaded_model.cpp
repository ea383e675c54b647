#include "lockstep/train/loaded_model.h"

namespace lockstep::train {

LoadedModel::LoadedModel(const Task& task, const tensor::WeightFiles& weights, ThreadTeam& team)
    : layout_(task.param_specs()), params_(layout_, task.compute_dtype(), 1) {
  const auto read = [&](tensor::ParamId id, const at::Tensor& stored) {
    const tensor::ParamSlot& slot = layout_.slot(id);
    params_.segment(slot.segment).narrow(0, slot.offset, slot.numel).copy_(stored.reshape({-1}));
  };
  task.load_weights(layout_, weights, read, team);
}

}  // namespace lockstep::train
