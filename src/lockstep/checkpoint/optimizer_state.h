#pragma once

#include "lockstep/tensor/param_layout.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace lockstep::checkpoint {

/// The kinds of logical tensors in the file; "<parameter>.<kind>" is its name.
inline constexpr const char* kOptimizerKinds[] = {"exp_avg", "exp_avg_sq", "master"};

/// Collective, as save_model_folder. One safetensors file, float32, tensors whole whatever the number of ranks, so
/// that any layout can read it. Metadata: format "lockstep-optimizer-1", "step" = updates applied.
void save_optimizer_state(const tensor::ParamLayout& layout, int64_t step,
                          const std::function<at::Tensor(tensor::ParamId, const std::string& kind)>& gather,
                          bool writes, const std::filesystem::path& path);

}  // namespace lockstep::checkpoint
