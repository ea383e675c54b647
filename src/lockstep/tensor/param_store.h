#pragma once

#include "lockstep/tensor/param_layout.h"

#include <ATen/core/Tensor.h>

#include <vector>

namespace lockstep::tensor {

/// The weights that the kernels read: one flat buffer per segment (matrices in `compute_dtype`, vectors in float32;
/// both in double when compute_dtype is double, for tests) and a view of it per parameter.
/// Reads are safe from many threads while nobody writes.
class ParamStore {
 public:
  /// `shared`: num_bytes() zeros (at::kByte) that other processes see, too, and use as their weights; undefined: memory of
  /// its own.
  ParamStore(const ParamLayout& layout, at::ScalarType compute_dtype, int num_shards, at::Tensor shared = {});
  static int64_t num_bytes(const ParamLayout& layout, at::ScalarType compute_dtype, int num_shards);

  const ParamLayout& layout() const { return *layout_; }
  at::ScalarType compute_dtype() const { return compute_dtype_; }
  at::ScalarType vector_dtype() const;
  int num_shards() const { return num_shards_; }
  /// What one process writes, all have.
  bool is_shared() const { return shared_.defined(); }

  /// Shape as declared, contiguous, a view into the segment.
  const at::Tensor& weight(ParamId id) const { return weights_[static_cast<size_t>(id)]; }
  /// Flat, padded_elements(segment, num_shards) long; padding is zero.
  at::Tensor& segment(int index) { return segments_[static_cast<size_t>(index)]; }
  const at::Tensor& segment(int index) const { return segments_[static_cast<size_t>(index)]; }

 private:
  const ParamLayout* layout_;
  at::ScalarType compute_dtype_;
  int num_shards_;
  at::Tensor shared_;
  std::vector<at::Tensor> segments_;
  std::vector<at::Tensor> weights_;
};

}  // namespace lockstep::tensor
