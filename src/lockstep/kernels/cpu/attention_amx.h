#pragma once

#include <cstddef>
#include <cstdint>

/// Attention in bf16 on AMX tiles, forward and backward, by documents and key/value heads (docs/design/speed.md,
/// "Attention"). Torch-free. Thread-safe; every call works in memory of the caller's.
namespace lockstep::kernels::cpu::amx {

/// Head h of token t: `width` bf16 at data + t * token_stride + h * width.
struct HeadsIn {
  const uint16_t* data;
  int64_t token_stride;
};
struct HeadsOut {
  uint16_t* data;
  int64_t token_stride;
};

struct AttentionShape {
  int64_t heads, kv_heads, width;  ///< heads % kv_heads == 0, width % 32 == 0
  const int64_t* doc_starts;       ///< num_docs + 1 offsets
  int64_t num_docs;
  double scale;
  bool causal;
};

/// Word (query << 20) + key of a head's Philox stream decides; a probability is dropped when its word is below.
struct AttentionMasks {
  const uint32_t* keys = nullptr;      ///< two words of Philox key per head, null: no dropout
  const uint64_t* ordinals = nullptr;  ///< per document
  uint32_t drop_below = 0;
  float keep_scale = 1;                ///< 1 / (1 - p)
};

struct AttentionForward {
  AttentionShape shape;
  AttentionMasks masks;
  HeadsIn q, k, v;
  HeadsOut o;
  float* lse;           ///< head h's row at lse + h * stat_stride
  int64_t stat_stride;
};

struct AttentionBackward {
  AttentionShape shape;
  AttentionMasks masks;
  HeadsIn d_o, o, q, k, v;
  const float* lse;
  int64_t stat_stride;
  HeadsOut dq, dk, dv;
};

/// What attention_amx works in: `workspace` is aligned to 64 bytes.
size_t workspace_bytes_forward(const AttentionShape& shape);
size_t workspace_bytes_backward(const AttentionShape& shape);
/// Only where available().
void attention_forward(const AttentionForward& args, void* workspace);
void attention_backward(const AttentionBackward& args, void* workspace);

}  // namespace lockstep::kernels::cpu::amx
