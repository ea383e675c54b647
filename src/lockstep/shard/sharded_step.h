#pragma once

#include "lockstep/base/exact_sum.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/tensor/grad_accumulator.h"
#include "lockstep/tensor/param_store.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep::shard {

/// What the reduction found. The same on every rank.
struct ReduceOutcome {
  std::vector<tensor::ParamId> out_of_range;  ///< do the update again with a smaller scale for these
  std::vector<tensor::ParamId> non_finite;    ///< do not step
  double grad_norm = 0;                       ///< L2 over all parameters, before clipping; valid when both are empty
  bool clean() const { return out_of_range.empty() && non_finite.empty(); }
};

enum class State { Master, ExpAvg, ExpAvgSq };

/// This rank's float32 masters, moments and gradients, and the three moves of an optimizer step. "Collective over
/// the communicator" calls are made by one thread per rank; elementwise work is spread over `team`.
class ShardedStep {
 public:
  /// Keeps references to all arguments. `params.num_shards()` must be `comm.size()`.
  ShardedStep(tensor::ParamStore& params, comm::Communicator& comm, ThreadTeam& team);

  /// Takes the part of a stored tensor (float32, bfloat16, float16) that this rank owns into its master, and the
  /// whole into the compute weights (rounded to nearest even). Not collective.
  void load(tensor::ParamId id, const at::Tensor& stored);

  /// Collective. Sums the accumulators over ranks; leaves this rank's gradient shards in float32. The accumulator's
  /// content is unspecified afterwards.
  ReduceOutcome reduce(tensor::GradAccumulator& gradients);

  /// Collective. AdamW on the shards with the gradients of the last reduce(), then all ranks get the new compute
  /// weights. `weight_decay` of `step` applies to the parameters whose spec says so.
  void step(const optim::AdamWStep& step);

  /// Collective. One hash per block over the float32 masters, in the order of the blocks; equal on every rank and for
  /// every number of ranks.
  std::vector<uint64_t> master_hashes();

  /// Collective. The whole tensor in float32 on every rank, shape as declared.
  at::Tensor gather(tensor::ParamId id, State state);

  /// Bytes that this rank holds.
  int64_t state_bytes() const;

 private:
  struct Shard {
    at::Tensor master, exp_avg, exp_avg_sq, grad;  ///< float32, shard_pieces * kPieceElements
    int64_t first_piece = 0;
    int64_t num_pieces = 0;
  };
  struct PieceRef {
    int segment;
    int64_t piece;          ///< inside the shard
    tensor::ParamId param;
    int64_t numel;          ///< elements of the parameter in this piece
  };

  void sum_squares(ExactSum& total, std::vector<uint8_t>& non_finite) const;
  ReduceOutcome agree(const tensor::GradAccumulator& gradients, const std::vector<uint8_t>& non_finite,
                      const ExactSum& squares);
  void publish(int segment);

  tensor::ParamStore& params_;
  comm::Communicator& comm_;
  ThreadTeam& team_;
  std::vector<Shard> shards_;      ///< per segment
  std::vector<PieceRef> pieces_;   ///< owned, without padding
};

}  // namespace lockstep::shard
