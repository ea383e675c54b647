#pragma once

#include "lockstep/base/exact_sum.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/thread_team.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/shard/factored_moments.h"
#include "lockstep/tensor/grad_accumulator.h"
#include "lockstep/tensor/param_store.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::shard {

/// What the reduction found. The same on every rank.
struct ReduceOutcome {
  std::vector<tensor::ParamId> out_of_range;  ///< do the update again with a smaller scale for these
  std::vector<tensor::ParamId> non_finite;    ///< do not step
  double grad_norm = 0;                       ///< L2 over all parameters, before clipping; valid when both are empty
  bool clean() const { return out_of_range.empty() && non_finite.empty(); }
};

/// Elements [begin, end) of a named state of a parameter that this rank owns, where they live. A state is flat here.
struct OwnedState {
  tensor::ParamId param = 0;
  std::string state;              ///< kMasterState, or torch's name: see state_names()
  int64_t begin = 0, end = 0;     ///< begin is a multiple of kPieceElements where a state has the parameter's elements
  int64_t numel = 0;              ///< of the whole state
  std::span<const float> values;
};

enum class State { Master, ExpAvg, ExpAvgSq };

inline constexpr const char* kMasterState = "master";

/// This rank's float32 masters and optimizer states, and the three moves of an optimizer step. "Collective over
/// the communicator" calls are made by one thread per rank; elementwise work is spread over `team`.
class ShardedStep {
 public:
  /// Keeps references to params, comm and team. `params.num_shards()` must be `comm.size()`. `rule` says which states
  /// there are; every step() must be of the same kind.
  ShardedStep(tensor::ParamStore& params, comm::Communicator& comm, ThreadTeam& team,
              const optim::OptimizerRule& rule = optim::AdamWRule{});

  /// Takes the part of a stored tensor (float32, bfloat16, float16) that this rank owns into its master, and the
  /// whole into the compute weights (rounded to nearest even), or its part where all ranks share them. Not collective;
  /// different parameters may be loaded at the same time. Shared weights are whole once all ranks have loaded theirs.
  void load(tensor::ParamId id, const at::Tensor& stored);

  /// Collective. Sums the accumulators over ranks. Afterwards `gradients.gradient()` gives the sums of this rank's part of
  /// each segment, and the rest is unspecified. They never take memory of their own, and a piece is done with before it
  /// leaves the cache.
  ReduceOutcome reduce(tensor::GradAccumulator& gradients);

  /// Collective. The optimizer on the shards with the sums that reduce() left in `gradients`, then all ranks get the new
  /// compute weights. `weight_decay` of `step` applies to the parameters whose spec says so.
  void step(const optim::OptimizerStep& step, const tensor::GradAccumulator& gradients);
  /// The same for AdamW.
  void step(const optim::AdamWStep& step, const tensor::GradAccumulator& gradients);

  /// Collective. One hash per block over the float32 masters, in the order of the blocks; equal on every rank and for
  /// every number of ranks.
  std::vector<uint64_t> master_hashes();

  /// kMasterState and the optimizer's states of a parameter.
  std::vector<std::string> state_names(tensor::ParamId id) const;
  std::vector<int64_t> state_shape(tensor::ParamId id, std::string_view name) const;
  /// Collective. The whole tensor in float32 on every rank; the parameter's shape, or that of Adafactor's rows and columns.
  at::Tensor gather(tensor::ParamId id, std::string_view name);
  at::Tensor gather(tensor::ParamId id, State state);

  /// What this rank owns of masters and optimizer states: over all ranks every element once. Not collective. The spans stay
  /// valid; their values change in step(), load() and load_state() alone.
  std::vector<OwnedState> owned_states() const;

  /// Collective. Takes masters and states from `read`, which gets each of owned_states() and fills `out` with its values
  /// (many threads at a time); then all ranks get the compute weights. Adafactor's rows and columns, of which every rank
  /// works with the whole, are asked for whole on every rank.
  void load_state(const std::function<void(const OwnedState& what, std::span<float> out)>& read);

  /// Bytes of the masters and states of this rank, those included that are compute weights or were never written.
  int64_t state_bytes() const;

 private:
  struct Shard {
    at::Tensor master;                 ///< float32, shard_pieces * kPieceElements; see is_weights
    bool is_weights = false;           ///< the compute weights are float32 too: the master is its part of them
    std::vector<std::string> names;    ///< of states
    std::vector<at::Tensor> states;    ///< each like master
    std::vector<uint8_t> begun;        ///< per piece: its states may hold something else than zeros
    std::vector<uint8_t> lies_in_weights;  ///< per piece: its master is still its bfloat16 weights, widened
    int64_t first_piece = 0;           ///< in the segment
    int64_t num_pieces = 0;
  };
  /// Consecutive pieces of this rank in one segment: what a thread takes at a time.
  struct Run {
    int segment = 0;
    int64_t first = 0, count = 0;            ///< pieces, from the shard's begin
  };
  struct PieceRef {
    int segment = 0;
    int64_t piece = 0;                       ///< from the shard's begin
    tensor::ParamId param = -1;              ///< -1: padding
    int64_t numel = 0;                       ///< elements of the parameter in this piece
  };
  /// Room for the gradients of one piece: a thread's own, on its stack.
  using PieceBuffer = std::array<float, static_cast<size_t>(tensor::kPieceElements)>;

  PieceRef piece_at(int segment, int64_t piece) const;
  /// Calls work(PieceRef) for the pieces of a run that hold a parameter.
  template <class Work>
  void for_each_piece(const Run& run, const Work& work) const {
    for (int64_t piece = run.first; piece < run.first + run.count; ++piece) {
      const PieceRef ref = piece_at(run.segment, piece);
      if (ref.param >= 0) work(ref);
    }
  }
  std::span<const float> gradient_of(const PieceRef& ref, const tensor::GradAccumulator& gradients,
                                     PieceBuffer& buffer) const;
  void sum_over_ranks(tensor::GradAccumulator& gradients);
  /// In reduce(): shared sums are added up over the ranks on the way.
  std::span<const float> summed_gradient_of(const PieceRef& ref, tensor::GradAccumulator& gradients,
                                            PieceBuffer& buffer) const;
  void sum_squares(tensor::GradAccumulator& gradients, ExactSum& total,
                   std::vector<uint8_t>& non_finite) const;
  ReduceOutcome agree(const tensor::GradAccumulator& gradients, const std::vector<uint8_t>& non_finite,
                      const ExactSum& squares);
  void step_elementwise(const optim::OptimizerStep& step, const tensor::GradAccumulator& gradients);
  /// States of zeros whose pages nobody has written stay so while the rule leaves zeros: for rows without a gradient.
  void step_piece(const optim::OptimizerStep& step, const PieceRef& ref, std::span<const float> gradient);
  void step_adafactor(const optim::OptimizerStep& step, const tensor::GradAccumulator& gradients);
  /// Adafactor's divisor of each parameter's update.
  std::vector<double> update_divisors(const optim::OptimizerStep& step, const tensor::GradAccumulator& gradients);
  /// u of a piece (optim/adafactor.h), from the states of this update.
  void adafactor_update(const PieceRef& ref, std::span<const float> grad, double grad_scale, std::span<float> update);
  /// Calls change(PieceRef) for each piece of this rank, on all threads, and derives from its master, while that is in
  /// the cache, what depends on it: the compute weights and the hash.
  void change_pieces(const std::function<void(const PieceRef& ref)>& change);
  /// Bytes of masters, states and weights that a step of a run reads and writes, for a profile.
  int64_t step_bytes(const Run& run) const;
  void round_into_weights(const PieceRef& ref);
  /// The piece's master where it lies, or from its weights in `room`.
  std::span<const float> master_of(const PieceRef& ref, PieceBuffer& room) const;
  /// Writes the piece's master, where that is still to be done; take_masters(): all of this rank, on all threads. The values of
  /// masters, which is all that anyone sees, do not change.
  void take_master(const PieceRef& ref) const;
  void take_masters() const;
  void add_hash(const PieceRef& ref, PieceHash& hash) const;
  /// Calls work(Run, PieceHash) for each run, on all threads, and adds up the hashes by block.
  void hash_runs(const std::function<void(const Run& run, PieceHash& hash)>& work);
  void all_gather_weights();
  /// Elements [begin, end) of the parameter that this rank owns; empty when it owns none.
  std::pair<int64_t, int64_t> owned(tensor::ParamId id) const;
  /// The flat tensor that holds an elementwise state of a segment's shard.
  const at::Tensor& flat_state(int segment, std::string_view name) const;
  /// Adafactor's rows or columns of a matrix, which all ranks hold whole; nullptr for every other state.
  const at::Tensor* replicated_state(tensor::ParamId id, std::string_view name) const;
  /// The states of a parameter that this rank works with: its own part, and replicated ones whole.
  std::vector<OwnedState> held_states(tensor::ParamId id) const;

  tensor::ParamStore& params_;
  comm::Communicator& comm_;
  ThreadTeam& team_;
  optim::OptimizerRule rule_;
  mutable std::vector<Shard> shards_;  ///< per segment
  std::vector<Run> runs_;
  std::vector<uint64_t> hashes_;           ///< per block, of this rank's pieces
  std::atomic<bool> hashes_current_ = false;  ///< hashes_ are those of the masters as they are
  std::unique_ptr<FactoredMoments> factored_;  ///< Adafactor only
};

}  // namespace lockstep::shard
