#pragma once

#include "lockstep/tensor/param_layout.h"
#include "lockstep/tensor/safetensors.h"

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

/// What every reader of a folder's weights checks. Inside model/ only; all throw Error{Data}.
namespace lockstep::model::detail {

/// The first three names, and how many more.
std::string first_few(const std::vector<std::string>& names);

/// Shape and dtype (float32, bfloat16, float16) of the tensor stored as `name` for the parameter `spec`.
void check_form(const tensor::ParamSpec& spec, const tensor::WeightFiles& files, const std::string& name,
                const at::Tensor& stored);
/// No NaN and no infinity.
void check_finite(const tensor::WeightFiles& files, const std::string& name, const at::Tensor& stored);

/// float32, which holds every value of both half types, where dtypes differ.
at::ScalarType common_dtype(std::optional<at::ScalarType> so_far, at::ScalarType next);

}  // namespace lockstep::model::detail
