#pragma once

#include "lockstep/base/exact_sum.h"
#include "lockstep/model/grain_input.h"
#include "lockstep/model/norms.h"
#include "lockstep/tensor/grad_sink.h"
#include "lockstep/tensor/param_store.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

/// The last block: final norm, head, softmax and loss, fused over chunks of target tokens so that the full logits
/// never exist. Only positions with a target are projected (as trl/trainer/utils.py add_fused_lm_head).
/// Letters: T tokens of the grain, R of them with a target, C of those in a chunk, H hidden, V vocabulary.
/// All functions are pure and safe from many threads, one grain per call.
namespace lockstep::loss {

/// Sums over the target tokens of one grain, per document in double and in token order, then exact: they do not depend
/// on how documents are grouped into chunks, grains and processes.
struct LossSums {
  ExactSum nll;          ///< nats
  ExactSum entropy;      ///< nats
  ExactSum router;       ///< load-balancing loss of each grain times its tokens; 0 where it is not asked for
  int64_t num_top1 = 0;  ///< targets that are the argmax; of equal logits the lowest index counts
  int64_t num_targets = 0;
  void merge(const LossSums& other);
};

struct LmHead {
  model::Norm final_norm;
  tensor::ParamId head_weight_id = -1;
  double softcap = 0;    ///< above 0: logits become softcap * tanh(logit / softcap)
};

/// Target tokens per chunk: a function of the vocabulary alone. Logits of a chunk stay near 2^26 values, and the
/// chunk is a multiple of 64 from 128 to 1,024: below that the weight gradient's V x H additions dominate.
int64_t head_chunk_tokens(int64_t vocab_size);
int64_t num_head_chunks(int64_t num_targets, int64_t vocab_size);

struct HeadBackward {
  LossSums sums;
  at::Tensor dx_TH;      ///< gradient of the residual stream that entered the head (dtype of x_TH)
  std::vector<double> nll_per_doc;
};
/// Forward and backward of (sum of nll) / divisor in one pass. `divisor`: the update's number of target tokens.
/// A grain without targets gives zeros and leaves nothing in the sink.
HeadBackward lm_head_backward(const tensor::ParamStore& params, const LmHead& head, const at::Tensor& x_TH,
                              const model::GrainInput& grain, double divisor, tensor::GradSink& sink);
/// Forward only.
LossSums lm_head_forward(const tensor::ParamStore& params, const LmHead& head, const at::Tensor& x_TH,
                         const model::GrainInput& grain);
/// Full logits of chosen rows (int64) in float32 (float64), for tests and generation.
at::Tensor lm_head_logits(const tensor::ParamStore& params, const LmHead& head, const at::Tensor& x_TH,
                          const at::Tensor& rows);

}  // namespace lockstep::loss
