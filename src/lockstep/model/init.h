#pragma once

#include "lockstep/tensor/param_layout.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>

/// Values of parameters that a model folder lacks. They are functions of (seed, name, element index) through Philox, so
/// any process can make any part; not torch's bits, which depend on the order in which Python makes the modules.
namespace lockstep::model {

/// Normal with mean 0: the inverse cumulative distribution (Wichura, algorithm AS 241, 1988) of a uniform number of 32
/// bits, without the C library's logarithm, so that every machine gets the same bits.
void fill_normal(std::span<float> out, double standard_deviation, uint64_t seed, const std::string& name);

/// Quantile of the standard normal distribution for 2^-33 <= p <= 1 - 2^-33; relative error about 1e-15.
double normal_quantile(double p);

/// float32, shape of the spec: matrices normal(0, initializer_range), biases 0, norm weights 1 (transformers'
/// PreTrainedModel._init_weights).
at::Tensor new_parameter(const tensor::ParamSpec& spec, double initializer_range, uint64_t seed);

}  // namespace lockstep::model
