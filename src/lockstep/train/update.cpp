#include "lockstep/train/update.h"

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/huge_page.h"
#include "lockstep/base/log.h"
#include "lockstep/base/profile.h"
#include "lockstep/optim/adamw.h"
#include "lockstep/tensor/arena.h"
#include "lockstep/tensor/flat_buffer.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/memory.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

namespace lockstep::train {
namespace {

/// A retry for range lowers s by this much; three of them span every float32.
constexpr int kScaleStep = 16;

/// Beyond it the optimizer went wrong: no trained model comes near it.
constexpr float kLargestWeight = 1e6F;

double milliseconds_since(Clock::time_point start) { return 1e3 * seconds_since(start); }

/// "row 4" or "rows 4, 9 and 3 more", counted from 1 as in the start-up report.
std::string rows_text(const std::vector<int64_t>& ids) {
  constexpr size_t kShown = 8;
  std::string text = ids.size() == 1 ? "row" : "rows";
  for (size_t i = 0; i < std::min(ids.size(), kShown); ++i) {
    text += fmt::format("{} {}", i == 0 ? "" : ",", ids[i] + 1);
  }
  if (ids.size() > kShown) text += fmt::format(" and {} more", ids.size() - kShown);
  return text;
}

/// For tests of the law: a grain whose gradients go nowhere.
class NullSink final : public tensor::GradSink {
 public:
  void add(tensor::ParamId, const at::Tensor&) override {}
  void add_rows(tensor::ParamId, const at::Tensor&, const at::Tensor&) override {}
};

/// One copy for the ranks of a host, where they can share memory: rank 0's.
tensor::ParamStore share_weights(const tensor::ParamLayout& layout, at::ScalarType dtype, comm::Communicator& comm) {
  const int64_t bytes = comm.rank() == 0 ? tensor::ParamStore::num_bytes(layout, dtype, comm.size()) : 0;
  const std::vector<at::Tensor> of_rank = comm.share_bytes(bytes, "memory for weights");
  return {layout, dtype, comm.size(), of_rank.empty() ? at::Tensor() : of_rank[0]};
}

std::unique_ptr<tensor::GradAccumulator> share_sums(const tensor::ParamLayout& layout, tensor::Reduction reduction,
                                                    comm::Communicator& comm) {
  const int64_t bytes = tensor::GradAccumulator::num_bytes(layout, reduction, comm.size());
  return std::make_unique<tensor::GradAccumulator>(layout, reduction, comm.size(),
                                                   comm.share_bytes(bytes, "memory for gradients"), comm.rank());
}

}  // namespace

Trainer::Trainer(TrainSetup setup, const Task& task, const tensor::WeightFiles& weights, comm::Communicator& comm,
                 ThreadTeam& team, TrainProbes probes)
    : setup_(std::move(setup)),
      task_(task),
      comm_(comm),
      team_(team),
      probes_(std::move(probes)),
      order_(setup_.order),
      layout_(task.param_specs()),
      params_(share_weights(layout_, task.compute_dtype(), comm)),
      sharded_(params_, comm, team, setup_.optimizer.rule),
      gradients_(share_sums(layout_, setup_.reduction, comm)),
      grain_teams_(team, setup_.grain_threads) {
  take_pages_of_weights(weights);
  stored_dtype_ = task.load_weights(
      layout_, weights, [&](tensor::ParamId id, const at::Tensor& stored) { sharded_.load(id, stored); }, team);
  if (params_.is_shared()) comm.barrier("weights of all ranks");
}

Trainer::~Trainer() = default;

void Trainer::take_pages_of_weights(const tensor::WeightFiles& weights_read) {
  const std::vector<std::string> names = weights_read.names();
  // Masters of such weights are made at the first step (ShardedStep::load).
  const bool all_bf16 = std::ranges::all_of(names, [&](const std::string& name) {
    return weights_read.tensor(name).scalar_type() == at::kBFloat16;
  });
  std::vector<std::span<const std::byte>> buffers;
  if (params_.is_shared()) take_shared_pages();
  for (int segment = 0; segment < layout_.num_segments() && !params_.is_shared(); ++segment) {
    const at::Tensor& weights = params_.segment(segment);
    buffers.emplace_back(static_cast<const std::byte*>(weights.const_data_ptr()), weights.nbytes());
  }
  for (const shard::OwnedState& owned : all_bf16 ? std::vector<shard::OwnedState>() : sharded_.owned_states()) {
    const bool is_weights = params_.weight(owned.param).scalar_type() == at::kFloat;
    if (owned.state == shard::kMasterState && !is_weights) buffers.push_back(std::as_bytes(owned.values));
  }
  tensor::take_pages(buffers, team_);
}

/// Each rank its share of the huge pages.
void Trainer::take_shared_pages() {
  auto* const begin = static_cast<std::byte*>(params_.segment(0).data_ptr());
  const auto ranks = static_cast<size_t>(comm_.size()), rank = static_cast<size_t>(comm_.rank());
  const auto bytes = tensor::ParamStore::num_bytes(layout_, params_.compute_dtype(), comm_.size());
  const size_t pages = static_cast<size_t>(bytes) / kHugePageBytes;
  team_.run((pages + ranks - 1) / ranks, [&](size_t item, int) {
    const size_t page = item * ranks + rank;
    if (page < pages) take_huge_page(begin + page * kHugePageBytes);
  });
}

PlanOptions Trainer::plan_options() const {
  PlanOptions options;
  options.cut = setup_.cut;
  options.order = setup_.grain_order;
  options.num_ranks = comm_.size();
  options.cost = task_.cost_model();
  return options;
}

UpdatePlan Trainer::plan(int64_t update) const {
  const profile::Scope span(profile::Kind::Plan);
  return plan_update(task_.sizes(), order_.samples(update), plan_options());
}

// One optimizer step, in the order things happen.
UpdateMetrics Trainer::run_update(int64_t update) {
  const Clock::time_point start = Clock::now();
  const profile::Scope span(profile::Kind::Update, update);
  const UpdatePlan plan = this->plan(update);

  UpdateMetrics metrics;
  metrics.update = update;
  metrics.epoch = plan.samples.epoch_progress;
  LS_CHECK(learning_rate_ || !follows_metric(), "update {} has no learning rate", update);
  metrics.learning_rate = learning_rate_ ? *learning_rate_ : setup_.optimizer.learning_rate * setup_.schedule.factor(update);
  metrics.update_tokens = plan.num_tokens;
  metrics.num_samples = static_cast<int64_t>(plan.samples.rows.size());
  metrics.num_grains = static_cast<int64_t>(plan.grains.size());
  metrics.balance = data::balance(plan.costs, comm_.size() * grain_teams_.at_once());
  metrics.num_tokens = cursor_.num_tokens += plan.num_tokens;
  cursor_.update = update;

  loss::LossSums total;
  const shard::ReduceOutcome reduced = reduce(plan, total, metrics);
  const auto targets = static_cast<double>(total.num_targets);
  metrics.loss = total.nll.value() / targets;
  if (const double coefficient = task_.router_coefficient(); coefficient > 0) {
    metrics.router_loss = total.router.value() / static_cast<double>(plan.num_tokens);
    metrics.loss += coefficient * *metrics.router_loss;
  }
  metrics.entropy = total.entropy.value() / targets;
  metrics.mean_token_accuracy = static_cast<double>(total.num_top1) / targets;
  metrics.has_entropy = task_.has_entropy();
  metrics.has_accuracy = task_.has_accuracy();
  metrics.grad_norm = reduced.grad_norm;

  if (!reduced.non_finite.empty() || !std::isfinite(total.nll.value())) {
    if (setup_.non_finite == NonFinitePolicy::Stop) stop_non_finite(plan, reduced);
    metrics.skipped = true;
    metrics.grad_norm = std::numeric_limits<double>::quiet_NaN();
  } else {
    apply(reduced, metrics);
  }
  metrics.block_hashes = sharded_.master_hashes();
  metrics.step_ms = milliseconds_since(start);
  const MemoryUse memory = memory_use();
  metrics.resident_bytes = memory.resident_bytes;
  metrics.peak_resident_bytes = memory.peak_resident_bytes;
  return metrics;
}

// Computes and sums until no contribution was out of range.
shard::ReduceOutcome Trainer::reduce(const UpdatePlan& plan, loss::LossSums& total, UpdateMetrics& metrics) {
  std::vector<int> scales(static_cast<size_t>(layout_.num_params()), setup_.scale_bits);
  const std::vector<int64_t> contributions = task_.contributions(plan);
  for (;;) {
    const Clock::time_point begin = Clock::now();
    gradients_->begin_update(scales, contributions);
    const loss::LossSums mine = compute_grains(plan);
    if (probes_.after_backward) probes_.after_backward(plan.samples.update, *gradients_);
    metrics.compute_ms += milliseconds_since(begin);

    const Clock::time_point computed = Clock::now();
    total = sum_over_ranks(mine, comm_);
    shard::ReduceOutcome reduced = sharded_.reduce(*gradients_);
    metrics.reduce_ms += milliseconds_since(computed);
    if (reduced.out_of_range.empty() || !reduced.non_finite.empty()) return reduced;

    ++metrics.range_retries;
    for (const tensor::ParamId id : reduced.out_of_range) {
      int& scale = scales[static_cast<size_t>(id)];
      if (scale < kScaleStep) {
        throw Error::non_finite("update {}: gradients of {} exceed the range of the exact sum at every scale. Lower "
                                "--learning_rate, check the data, or use --reduction float32.",
                                plan.samples.update, layout_.spec(id).name);
      }
      log::info("train", "update {}: a gradient of {} is too large for 2^-{}; computing the update again with 2^-{}",
                plan.samples.update, layout_.spec(id).name, scale, scale - kScaleStep);
      scale -= kScaleStep;
    }
  }
}

// The sums over the grains of this rank.
loss::LossSums Trainer::compute_grains(const UpdatePlan& plan) {
  const std::vector<int64_t>& mine = plan.dealt[static_cast<size_t>(comm_.rank())];
  loss::LossSums sums;
  NullSink nowhere;
  std::mutex mutex;  // guards sums
  grain_teams_.run(mine.size(), [&](size_t item) {
    const int64_t index = mine[item];
    const profile::Scope span(profile::Kind::Grain, index);
    const tensor::ArenaScope memory;
    const data::Grain& grain = plan.grains[static_cast<size_t>(index)];
    const bool drop = probes_.drop_grain && probes_.drop_grain(plan.samples.update, index);
    tensor::GradSink& sink = drop ? static_cast<tensor::GradSink&>(nowhere) : *gradients_;
    const auto after_forward = [&] {
      if (probes_.after_first_forward) probes_.after_first_forward();
    };
    const loss::LossSums part = task_.run_grain(params_, rows_of(plan, grain), static_cast<double>(plan.num_targets),
                                                setup_.keep, sink, after_forward);
    const std::lock_guard lock(mutex);
    sums.merge(part);
    ++num_grains_computed_;
  });
  return sums;
}

void Trainer::apply(const shard::ReduceOutcome& reduced, UpdateMetrics& metrics) {
  const Clock::time_point start = Clock::now();
  optim::OptimizerStep step = setup_.optimizer;
  step.learning_rate = metrics.learning_rate;
  step.step = ++cursor_.updates_applied;
  step.grad_scale = optim::clip_scale(reduced.grad_norm, setup_.max_grad_norm);
  if (before_step_) {
    const profile::Scope span(profile::Kind::Checkpoint);
    before_step_();
  }
  sharded_.step(step, *gradients_);
  metrics.optimizer_ms = milliseconds_since(start);
}

std::string Trainer::spoilt_weights() const {
  std::string mine;
  for (const shard::OwnedState& state : sharded_.owned_states()) {
    if (state.state != shard::kMasterState || !mine.empty()) continue;
    const auto spoilt = std::find_if(state.values.begin(), state.values.end(),
                                     [](float value) { return !(std::fabs(value) <= kLargestWeight); });
    if (spoilt != state.values.end()) mine = fmt::format("{} holds {}", layout_.spec(state.param).name, std::fabs(*spoilt));
  }
  for (std::string& text : comm_.all_gather_text(mine, "search for spoilt weights")) {
    if (!text.empty()) return std::move(text);
  }
  return {};
}

void Trainer::stop_non_finite(const UpdatePlan& plan, const shard::ReduceOutcome& reduced) {
  // Every row would be found faulty then.
  if (const std::string weight = cursor_.updates_applied > 0 ? spoilt_weights() : ""; !weight.empty()) {
    throw Error::non_finite("update {}: the loss or a gradient is NaN or infinite, because the weights are spoilt: {}. The optimizer "
                            "made that of them, not the rows of this update. Lower --learning_rate, or check the optimizer's other "
                            "numbers, as --adam_epsilon.", plan.samples.update, weight);
  }
  std::string mine;
  for (const int64_t index : plan.dealt[static_cast<size_t>(comm_.rank())]) {
    const data::Grain& grain = plan.grains[static_cast<size_t>(index)];
    const auto report = task_.diagnose_grain(params_, rows_of(plan, grain), static_cast<double>(plan.num_targets));
    if (!report) continue;
    mine = fmt::format("first in {}, {} of the data", report->block, rows_text(report->sample_ids));
    break;
  }
  std::string where;
  for (const std::string& text : comm_.all_gather_text(mine, "search for the non-finite block")) {
    if (where.empty()) where = text;
  }
  if (where.empty() && !reduced.non_finite.empty()) {
    where = fmt::format("in the sum of gradients of {}", layout_.spec(reduced.non_finite.front()).name);
  }
  throw Error::non_finite("update {}: the loss or a gradient is NaN or infinite: {}. Look at these rows, lower "
                          "--learning_rate, or use --non_finite skip to leave such updates out.",
                          plan.samples.update, where);
}

void Trainer::restore(const RunCursor& cursor,
                      const std::function<void(const shard::OwnedState& what, std::span<float> out)>& read) {
  sharded_.load_state(read);
  cursor_ = cursor;
}

void Trainer::replace_masters(
    const std::function<void(const shard::OwnedState& what, std::span<float> out)>& read) {
  sharded_.load_state([&](const shard::OwnedState& what, std::span<float> out) {
    if (what.state == shard::kMasterState) {
      read(what, out);
    } else if (what.values.data() != out.data()) {
      std::copy(what.values.begin(), what.values.end(), out.begin());
    }
  });
}

void Trainer::finish() {
  gradients_.reset();
  tensor::release_idle_arenas();
}

}  // namespace lockstep::train
