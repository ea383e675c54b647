#include "lockstep/model/decoding.h"

#include "lockstep/base/error.h"

#include <ATen/ops/empty.h>

namespace lockstep::model {
namespace {

thread_local ThreadTeam* decoding_team = nullptr;

}  // namespace

KvCache::KvCache(const DecoderConfig& config, at::ScalarType dtype, int64_t capacity) {
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const auto rows = [&] { return at::empty({capacity, config.num_kv_heads, config.head_dim}, dtype); };
    layers_.push_back({rows(), rows(), 0});
  }
}

void KvCache::append(int layer, const at::Tensor& k_TKD, const at::Tensor& v_TKD) {
  kernels::CachedTokens& tokens = layers_[static_cast<size_t>(layer)];
  const int64_t count = k_TKD.size(0);
  LS_CHECK(tokens.length + count <= tokens.k_CKD.size(0), "cache: {} tokens and {} more, room for {}", tokens.length, count,
           tokens.k_CKD.size(0));
  tokens.k_CKD.narrow(0, tokens.length, count).copy_(k_TKD);
  tokens.v_CKD.narrow(0, tokens.length, count).copy_(v_TKD);
  tokens.length += count;
}

TokenByToken::TokenByToken(ThreadTeam& team) {
  LS_CHECK(decoding_team == nullptr, "decoding within decoding");
  decoding_team = &team;
}

TokenByToken::~TokenByToken() { decoding_team = nullptr; }

ThreadTeam* TokenByToken::team() { return decoding_team; }

}  // namespace lockstep::model
