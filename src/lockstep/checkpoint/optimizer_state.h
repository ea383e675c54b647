#pragma once

#include "lockstep/tensor/param_layout.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::checkpoint {

/// A tensor that belongs to a parameter: "master", or torch's name of an optimizer's state; "<parameter>.<name>" in the file.
struct StateTensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// Collective, as save_model_folder. One safetensors file, float32, tensors whole whatever the number of ranks, so
/// that any layout can read it. Metadata: format "lockstep-optimizer-1", "step" = updates applied.
void save_optimizer_state(const tensor::ParamLayout& layout, int64_t step,
                          const std::function<std::vector<StateTensor>(tensor::ParamId)>& states,
                          const std::function<at::Tensor(tensor::ParamId, const std::string& name)>& gather,
                          bool writes, const std::filesystem::path& path);

}  // namespace lockstep::checkpoint
