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

/// This rank's float32 masters and moments, and the three moves of an optimizer step. "Collective over
/// the communicator" calls are made by one thread per rank; elementwise work is spread over `team`.
class ShardedStep {
 public:
  /// Keeps references to all arguments. `params.num_shards()` must be `comm.size()`.
  ShardedStep(tensor::ParamStore& params, comm::Communicator& comm, ThreadTeam& team);

  /// Takes the part of a stored tensor (float32, bfloat16, float16) that this rank owns into its master, and the
  /// whole into the compute weights (rounded to nearest even). Not collective; different parameters may be loaded at
  /// the same time.
  void load(tensor::ParamId id, const at::Tensor& stored);

  /// Collective. Sums the accumulators over ranks. Afterwards this rank's part of each segment of `gradients` holds the
  /// sum, in place, and the rest is unspecified: gradients are turned into float32 piece by piece where they are used,
  /// so they never take memory of their own.
  ReduceOutcome reduce(tensor::GradAccumulator& gradients);

  /// Collective. AdamW on the shards with the sums that reduce() left in `gradients`, then all ranks get the new
  /// compute weights. `weight_decay` of `step` applies to the parameters whose spec says so.
  void step(const optim::AdamWStep& step, const tensor::GradAccumulator& gradients);

  /// Collective. One hash per block over the float32 masters, in the order of the blocks; equal on every rank and for
  /// every number of ranks.
  std::vector<uint64_t> master_hashes();

  /// Collective. The whole tensor in float32 on every rank, shape as declared.
  at::Tensor gather(tensor::ParamId id, State state);

  /// Bytes that this rank holds.
  int64_t state_bytes() const;

 private:
  struct Shard {
    at::Tensor master, exp_avg, exp_avg_sq;  ///< float32, shard_pieces * kPieceElements
    int64_t first_piece = 0;                 ///< in the segment
    int64_t num_pieces = 0;
  };
  /// Consecutive pieces of this rank in one segment: what a thread takes at a time.
  struct Run {
    int segment = 0;
    int64_t first = 0, count = 0;            ///< pieces, from the shard's begin
  };
  struct PieceRef {
    int64_t piece = 0;                       ///< from the shard's begin
    tensor::ParamId param = -1;
    int64_t numel = 0;                       ///< elements of the parameter in this piece
  };

  /// The pieces of a run that hold a parameter (padding does not).
  std::vector<PieceRef> pieces_of(const Run& run) const;
  /// The gradients of a run in float32.
  at::Tensor gradients_of(const Run& run, const tensor::GradAccumulator& gradients) const;
  void sum_squares(const tensor::GradAccumulator& gradients, ExactSum& total,
                   std::vector<uint8_t>& non_finite) const;
  ReduceOutcome agree(const tensor::GradAccumulator& gradients, const std::vector<uint8_t>& non_finite,
                      const ExactSum& squares);
  void publish(int segment);

  tensor::ParamStore& params_;
  comm::Communicator& comm_;
  ThreadTeam& team_;
  std::vector<Shard> shards_;  ///< per segment
  std::vector<Run> runs_;
  std::vector<at::Tensor> sums_;  ///< per segment, since reduce(): this rank's part of the accumulator
};

}  // namespace lockstep::shard
