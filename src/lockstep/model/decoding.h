#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/kernels/decode.h"
#include "lockstep/model/config.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

/// What generation adds to a decoder's forward pass.
namespace lockstep::model {

/// Keys (after norms and rope) and values of one sequence's tokens, per layer.
class KvCache {
 public:
  /// Room for `capacity` tokens.
  KvCache(const DecoderConfig& config, at::ScalarType dtype, int64_t capacity);
  /// Of the sequence's next tokens.
  void append(int layer, const at::Tensor& k_TKD, const at::Tensor& v_TKD);
  const kernels::CachedTokens& layer(int layer) const { return layers_[static_cast<size_t>(layer)]; }

 private:
  std::vector<kernels::CachedTokens> layers_;
};

/// While it lives, products with parameters on this thread are kernels::row_product, and attention is that of one new
/// token per document over the grain's caches: results of a sequence depend on it alone. The same code of the layers then
/// prefills, decodes and trains. Not nested.
class TokenByToken {
 public:
  explicit TokenByToken(ThreadTeam& team);
  ~TokenByToken();
  TokenByToken(const TokenByToken&) = delete;
  TokenByToken& operator=(const TokenByToken&) = delete;

  /// The team of this thread's scope; null outside of one.
  static ThreadTeam* team();
};

}  // namespace lockstep::model
