#pragma once

#include "lockstep/base/thread_team.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/data/order.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/shard/sharded_step.h"
#include "lockstep/tensor/grad_accumulator.h"
#include "lockstep/tensor/param_store.h"
#include "lockstep/tensor/safetensors.h"
#include "lockstep/train/grain_teams.h"
#include "lockstep/train/metrics.h"
#include "lockstep/train/plan.h"
#include "lockstep/train/task.h"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::train {

enum class NonFinitePolicy { Stop, Skip };

struct TrainSetup {
  data::OrderOptions order;
  data::CutOptions cut;
  GrainOrder grain_order;
  optim::Schedule schedule;
  optim::OptimizerStep optimizer;       ///< learning_rate is the peak; step and grad_scale are filled per update
  double max_grad_norm = 1;
  tensor::Reduction reduction = tensor::Reduction::Exact;
  int scale_bits = tensor::kDefaultScaleBits;
  NonFinitePolicy non_finite = NonFinitePolicy::Stop;
  model::Keep keep = model::Keep::All;
  int grain_threads = 1;                ///< parts in which a grain's rows are computed (base/grain_team.h); part of the cut
};

/// Where a test may look in or break something; all may be empty. Called from the threads that compute.
struct TrainProbes {
  std::function<bool(int64_t update, int64_t grain)> drop_grain;        ///< true: its gradients are thrown away
  std::function<void(int64_t update, tensor::GradAccumulator&)> after_backward;
  std::function<void()> after_first_forward;                            ///< once per process
};

/// What a run has done, beside its state: with the order, the schedule and Philox all that is needed to go on.
struct RunCursor {
  int64_t update = 0;                   ///< the last one that was run
  int64_t updates_applied = 0;          ///< without those that were skipped
  int64_t num_tokens = 0;
};

/// Trains what a task describes, update by update, together with the other ranks of `comm`. All public calls are collective:
/// every rank makes them in the same order, from one thread.
class Trainer {
 public:
  /// Keeps references to everything; reads the weights before it returns.
  Trainer(TrainSetup setup, const Task& task, const tensor::WeightFiles& weights, comm::Communicator& comm,
          ThreadTeam& team, TrainProbes probes = {});
  ~Trainer();

  const data::Order& order() const { return order_; }
  const Task& task() const { return task_; }
  ThreadTeam& team() { return team_; }
  int grain_threads() const { return setup_.grain_threads; }
  int grains_at_once() const { return grain_teams_.at_once(); }
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
  int64_t num_updates_applied() const { return cursor_.updates_applied; }

  /// Of the updates that follow, in place of the schedule's: for a schedule that follows a metric, which gives none.
  void set_learning_rate(double rate) { learning_rate_ = rate; }
  bool follows_metric() const { return setup_.schedule.follows_metric(); }

  /// Called on every rank before each optimizer step: whoever reads the live state must be done when it returns.
  void set_before_step(std::function<void()> wait) { before_step_ = std::move(wait); }
  /// Where masters and the optimizer's states of this rank live; they change in run_update() alone, after the call above.
  std::vector<shard::OwnedState> owned_states() const { return sharded_.owned_states(); }
  const RunCursor& cursor() const { return cursor_; }
  /// As in UpdateMetrics::block_hashes, of the masters as they are.
  std::vector<uint64_t> master_hashes() { return sharded_.master_hashes(); }
  /// Before the first update: takes masters and states from `read`, which fills `out` (many threads at a time).
  void restore(const RunCursor& cursor,
               const std::function<void(const shard::OwnedState& what, std::span<float> out)>& read);

  /// The whole tensor in float32 on every rank.
  at::Tensor gather(tensor::ParamId id, shard::State state) { return sharded_.gather(id, state); }
  at::Tensor gather(tensor::ParamId id, std::string_view state) { return sharded_.gather(id, state); }
  /// "master" and the optimizer's states of a parameter.
  std::vector<std::string> state_names(tensor::ParamId id) const { return sharded_.state_names(id); }
  std::vector<int64_t> state_shape(tensor::ParamId id, std::string_view state) const {
    return sharded_.state_shape(id, state);
  }
  /// Collective. Takes the masters of another point of this run from `read`; nothing else changes. To save them: no update
  /// may follow.
  void replace_masters(const std::function<void(const shard::OwnedState& what, std::span<float> out)>& read);
  /// Frees the gradients' memory (8 bytes per parameter); no update may follow. Before saving.
  void finish();

 private:
  void take_pages_of_weights(const tensor::WeightFiles& weights_read);
  void take_shared_pages();
  loss::LossSums compute_grains(const UpdatePlan& plan);
  shard::ReduceOutcome reduce(const UpdatePlan& plan, loss::LossSums& sums, UpdateMetrics& metrics);
  void apply(const shard::ReduceOutcome& reduced, UpdateMetrics& metrics);
  /// Collective. The first weight that no model has: NaN, infinite or huge; empty when all are usual.
  std::string spoilt_weights() const;
  [[noreturn]] void stop_non_finite(const UpdatePlan& plan, const shard::ReduceOutcome& reduced);

  TrainSetup setup_;
  const Task& task_;
  comm::Communicator& comm_;
  ThreadTeam& team_;
  TrainProbes probes_;
  data::Order order_;
  tensor::ParamLayout layout_;
  tensor::ParamStore params_;
  shard::ShardedStep sharded_;
  std::unique_ptr<tensor::GradAccumulator> gradients_;
  at::ScalarType stored_dtype_ = at::kFloat;
  std::function<void()> before_step_;
  std::optional<double> learning_rate_;
  RunCursor cursor_;
  int64_t num_grains_computed_ = 0;
  GrainTeams grain_teams_;
};

}  // namespace lockstep::train
