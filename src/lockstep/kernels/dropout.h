#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>

namespace lockstep::kernels {

/// Streams of masks within a model of L layers: attention takes module = layer, segment = head; other dropout takes
/// segments from here on: module = layer for a layer's sublayers, L for the embedding, L + 1 for the head.
inline constexpr uint32_t kHiddenDropoutSegment = uint32_t{1} << 31;

/// Dropout (Srivastava et al., 2014) over the rows of packed documents: an element is zeroed with `probability`, else
/// multiplied by 1 / (1 - probability). The mask is a function of (seed, module, segment, the document's ordinal,
/// position in the document x width + column): it does not depend on the grain, and the backward pass draws it again.
struct Dropout {
  double probability = 0;               ///< 0: off; below 1
  uint64_t seed = 0;
  uint32_t module = 0;                  ///< layer index; below 2^24
  uint32_t segment = 0;                 ///< place in the module
};

/// x_TH (any dtype of one family) in `out_dtype`; also its own backward pass, applied to the gradient. `doc_starts`:
/// num_docs + 1 offsets into T; `ordinals`: per document. With probability 0 a conversion, or x itself if it has the
/// dtype already.
at::Tensor dropout(const at::Tensor& x_TH, at::ScalarType out_dtype, std::span<const int64_t> doc_starts,
                   std::span<const uint64_t> ordinals, const Dropout& config);

}  // namespace lockstep::kernels
