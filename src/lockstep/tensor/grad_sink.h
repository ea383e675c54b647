#pragma once

#include "lockstep/tensor/param_layout.h"

namespace at {
class Tensor;
}

namespace lockstep::tensor {

/// Where a backward pass leaves the gradients of parameters: one call is one contribution. Thread-safe: grains on
/// several threads add at once. A sink copies or adds before it returns; the caller may reuse `grad`.
class GradSink {
 public:
  virtual ~GradSink() = default;
  /// `grad` has the parameter's shape, any floating dtype, contiguous.
  virtual void add(ParamId id, const at::Tensor& grad) = 0;
  /// Row r of `grad` [num_rows, width] is a contribution to row rows[r] of a matrix parameter. `rows` is int64
  /// [num_rows]; the same row may appear several times (each counts as a contribution).
  virtual void add_rows(ParamId id, const at::Tensor& rows, const at::Tensor& grad) = 0;
  /// dy_TO^T x_TI as the contribution to a matrix [O, I], formed by the sink itself. False: the sink does not do that
  /// for these dtypes, and has added nothing.
  virtual bool add_product(ParamId /*id*/, const at::Tensor& /*dy_TO*/, const at::Tensor& /*x_TI*/) { return false; }
};

}  // namespace lockstep::tensor
