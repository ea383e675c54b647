#pragma once

#include "lockstep/base/philox.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>

/// Self-attention over packed documents with grouped heads, causal (decoders) or over the whole document (encoders);
/// a token never sees another document.
/// Letters: T tokens of the grain, N query heads, K key/value heads (N % K == 0), D head width, L one document.
namespace lockstep::kernels {

struct AttentionDropout {
  double probability = 0;               ///< 0: off
  uint64_t seed = 0;
  uint32_t module = 0;                  ///< layer index
  std::span<const uint64_t> ordinals;   ///< per document: ordinal of the sample in the run's stream
};

/// How a call is computed; the two give different bits.
enum class AttentionPath : uint8_t {
  Products,  ///< products of packed heads through ATen: every dtype, width and processor
  Tiles,     ///< one kernel on AMX tiles: bfloat16, D % 32 == 0
};
/// Tiles where the processor has them and the operands allow them. A function of the machine, dtype and width alone.
AttentionPath attention_path(at::ScalarType dtype, int64_t width);

struct AttentionConfig {
  double scale = 0;                     ///< usually 1 / sqrt(D)
  AttentionDropout dropout;
  bool causal = true;                   ///< false: every token sees its whole document
  std::optional<AttentionPath> path = {};  ///< unset: attention_path(); for tests and benchmarks
  int64_t window = 0;                   ///< above 0, causal: a token sees itself and window - 1 before it
  double softcap = 0;                   ///< above 0: scores become softcap * tanh(score / softcap) (gemma2)
};

struct AttentionSaved {
  at::Tensor o_TND;                     ///< the output (needed by backward; not a copy)
  at::Tensor lse_NT;                    ///< log-sum-exp per head and token, float32 (float64)
};

/// q_TND, k_TKD, v_TKD: one dtype (bfloat16, float32, float64). `doc_starts`: num_docs + 1 offsets into T.
/// Each document is computed alone, in a way that depends on lengths, head counts, width and dtype; on the path of
/// products, scores are rounded to the dtype. Capped scores, and a window that is shorter than the document, go there. Dropout masks are a function of (seed, layer, ordinal, head, query
/// position, key position), the same on both paths.
AttentionSaved attention_forward(const at::Tensor& q_TND, const at::Tensor& k_TKD, const at::Tensor& v_TKD,
                                 std::span<const int64_t> doc_starts, const AttentionConfig& config);

struct AttentionGrads {
  at::Tensor dq_TND, dk_TKD, dv_TKD;
};
AttentionGrads attention_backward(const at::Tensor& do_TND, const at::Tensor& q_TND, const at::Tensor& k_TKD,
                                  const at::Tensor& v_TKD, const AttentionSaved& saved,
                                  std::span<const int64_t> doc_starts, const AttentionConfig& config);

}  // namespace lockstep::kernels
