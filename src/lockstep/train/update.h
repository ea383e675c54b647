#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/data/examples.h"
#include "lockstep/data/order.h"
#include "lockstep/model/decoder.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/shard/sharded_step.h"
#include "lockstep/tensor/grad_accumulator.h"
#include "lockstep/tensor/param_store.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/train/grain.h"
#include "lockstep/train/metrics.h"
#include "lockstep/train/plan.h"

#include <functional>
#include <memory>
#include <vector>

namespace lockstep::train {

enum class NonFinitePolicy { Stop, Skip };

struct TrainSetup {
  model::DecoderConfig config;
  model::DecoderOptions decoder;
  at::ScalarType compute_dtype = at::kBFloat16;
  data::OrderOptions order;
  data::CutOptions cut;
  GrainOrder grain_order;
  optim::Schedule schedule;
  optim::AdamWStep adamw;               ///< learning_rate is the peak; step and grad_scale are filled per update
  double max_grad_norm = 1;
  tensor::Reduction reduction = tensor::Reduction::Exact;
  int scale_bits = tensor::kDefaultScaleBits;
  NonFinitePolicy non_finite = NonFinitePolicy::Stop;
  model::Keep keep = model::Keep::All;
};

/// Where a test may look in or break something; all may be empty. Called from the threads that compute.
struct TrainProbes {
  std::function<bool(int64_t update, int64_t grain)> drop_grain;        ///< true: its gradients are thrown away
  std::function<void(int64_t update, tensor::GradAccumulator&)> after_backward;
  std::function<void()> after_first_forward;                            ///< once per process
};

/// Trains one model, update by update, together with the other ranks of `comm`. All public calls are collective:
/// every rank makes them in the same order, from one thread.
class Trainer {
 public:
  /// Keeps references to everything; reads the weights before it returns.
  Trainer(TrainSetup setup, const std::vector<data::TokenRow>& rows, const tensor::WeightFiles& weights,
          comm::Communicator& comm, ThreadTeam& team, TrainProbes probes = {});
  ~Trainer();

  const data::Order& order() const { return order_; }
  const model::Decoder& decoder() const { return decoder_; }
  const tensor::ParamLayout& layout() const { return layout_; }
  const tensor::ParamStore& params() const { return params_; }
  at::ScalarType stored_dtype() const { return stored_dtype_; }

  /// Before the first update. Cannot show in the result.
  void set_keep(model::Keep keep) { setup_.keep = keep; }
  PlanOptions plan_options() const;
  UpdatePlan plan(int64_t update) const;
  /// 1 <= update <= order().total_updates(), in ascending order. Throws Error{NonFinite} naming update, samples and
  /// the first block that was not finite (policy Stop).
  UpdateMetrics run_update(int64_t update);
  /// Grains this rank has computed so far.
  int64_t num_grains_computed() const { return num_grains_computed_; }
  int64_t num_updates_applied() const { return num_updates_applied_; }

  /// The whole tensor in float32 on every rank.
  at::Tensor gather(tensor::ParamId id, shard::State state) { return sharded_.gather(id, state); }
  /// Frees the gradients' memory (8 bytes per parameter); no update may follow. Before saving.
  void finish();

 private:
  struct Computed;
  void load(const tensor::WeightFiles& weights);
  Computed compute_grains(const UpdatePlan& plan);
  Computed agree_on_sums(const Computed& mine);
  shard::ReduceOutcome reduce(const UpdatePlan& plan, Computed& sums, UpdateMetrics& metrics);
  void apply(const shard::ReduceOutcome& reduced, UpdateMetrics& metrics);
  [[noreturn]] void stop_non_finite(const UpdatePlan& plan, const shard::ReduceOutcome& reduced);

  TrainSetup setup_;
  const std::vector<data::TokenRow>& rows_;
  comm::Communicator& comm_;
  ThreadTeam& team_;
  TrainProbes probes_;
  data::Order order_;
  tensor::ParamLayout layout_;
  model::Decoder decoder_;
  tensor::ParamStore params_;
  shard::ShardedStep sharded_;
  std::unique_ptr<tensor::GradAccumulator> gradients_;
  at::ScalarType stored_dtype_ = at::kFloat;
  int64_t num_tokens_seen_ = 0;
  int64_t num_updates_applied_ = 0;
  int64_t num_grains_computed_ = 0;
};

}  // namespace lockstep::train
