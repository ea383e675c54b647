#include "lockstep/tensor/param_store.h"

#include "lockstep/base/error.h"
#include "lockstep/tensor/flat_buffer.h"

namespace lockstep::tensor {

ParamStore::ParamStore(const ParamLayout& layout, at::ScalarType compute_dtype, int num_shards)
    : layout_(&layout), compute_dtype_(compute_dtype), num_shards_(num_shards) {
  LS_CHECK(c10::isFloatingType(compute_dtype), "compute dtype {} is not a floating one", c10::toString(compute_dtype));
  for (int index = 0; index < layout.num_segments(); ++index) {
    const at::ScalarType dtype = layout.segment(index).matrices ? compute_dtype : vector_dtype();
    segments_.push_back(zero_flat_buffer(layout.padded_elements(index, num_shards), dtype));
  }
  weights_.reserve(static_cast<size_t>(layout.num_params()));
  for (ParamId id = 0; id < layout.num_params(); ++id) {
    const ParamSlot& slot = layout.slot(id);
    weights_.push_back(segment(slot.segment).narrow(0, slot.offset, slot.numel).view(layout.spec(id).shape));
  }
}

at::ScalarType ParamStore::vector_dtype() const {
  return compute_dtype_ == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace lockstep::tensor
