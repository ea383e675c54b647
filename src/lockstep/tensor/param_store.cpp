#include "lockstep/tensor/param_store.h"

#include "lockstep/base/error.h"
#include "lockstep/tensor/flat_buffer.h"

#include <utility>

namespace lockstep::tensor {
namespace {

/// Vectors are not rounded.
at::ScalarType vector_dtype_for(at::ScalarType compute_dtype) {
  return compute_dtype == at::kDouble ? at::kDouble : at::kFloat;
}

at::ScalarType dtype_of_segment(const ParamLayout& layout, int index, at::ScalarType compute_dtype) {
  return layout.segment(index).matrices ? compute_dtype : vector_dtype_for(compute_dtype);
}

}  // namespace

ParamStore::ParamStore(const ParamLayout& layout, at::ScalarType compute_dtype, int num_shards, at::Tensor shared)
    : layout_(&layout), compute_dtype_(compute_dtype), num_shards_(num_shards), shared_(std::move(shared)) {
  LS_CHECK(c10::isFloatingType(compute_dtype), "compute dtype {} is not a floating one", c10::toString(compute_dtype));
  LS_CHECK(!is_shared() || shared_.numel() == num_bytes(layout, compute_dtype, num_shards), "{} bytes for weights",
           shared_.numel());
  int64_t begin = 0;  // segments are whole pieces, so each begins well
  for (int index = 0; index < layout.num_segments(); ++index) {
    const at::ScalarType dtype = dtype_of_segment(layout, index, compute_dtype);
    const int64_t elements = layout.padded_elements(index, num_shards);
    const auto bytes = elements * static_cast<int64_t>(c10::elementSize(dtype));
    segments_.push_back(is_shared() ? shared_.narrow(0, begin, bytes).view(dtype) : zero_flat_buffer(elements, dtype));
    begin += bytes;
  }
  weights_.reserve(static_cast<size_t>(layout.num_params()));
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    const ParamSlot& slot = layout.slot(id);
    weights_.push_back(segment(slot.segment).narrow(0, slot.offset, slot.numel).view(layout.spec(id).shape));
  }
}

int64_t ParamStore::num_bytes(const ParamLayout& layout, at::ScalarType compute_dtype, int num_shards) {
  int64_t bytes = 0;
  for (int index = 0; index < layout.num_segments(); ++index) {
    const size_t each = c10::elementSize(dtype_of_segment(layout, index, compute_dtype));
    bytes += layout.padded_elements(index, num_shards) * static_cast<int64_t>(each);
  }
  return bytes;
}

at::ScalarType ParamStore::vector_dtype() const { return vector_dtype_for(compute_dtype_); }

}  // namespace lockstep::tensor
