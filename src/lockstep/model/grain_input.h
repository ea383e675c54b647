#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::model {

class KvCache;

/// The packed documents of one grain, without padding. T tokens, `num_docs` documents.
struct GrainInput {
  at::Tensor token_T;                   ///< int32
  at::Tensor position_T;                ///< int32, restarts at 0 in every document
  at::Tensor target_T;                  ///< int32: the id to predict at this position, -1 where nothing is predicted;
                                        ///< undefined for a classifier
  at::Tensor type_T;                    ///< int32: token types (segments of a pair); undefined: all 0
  std::vector<int64_t> doc_starts;      ///< num_docs + 1
  std::vector<uint64_t> ordinals;       ///< per document: samples consumed by the run before it (keys the randomness)
  std::vector<int64_t> sample_ids;      ///< per document: dataset row, for messages

  std::vector<KvCache*> caches;         ///< per document: generation alone (decoding.h)

  int64_t num_tokens() const { return doc_starts.back(); }
  int64_t num_docs() const { return static_cast<int64_t>(doc_starts.size()) - 1; }
};

}  // namespace lockstep::model
