#include "lockstep/train/update.h"

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/model/weights.h"
#include "lockstep/train/memory.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <mutex>

namespace lockstep::train {
namespace {

/// A retry for range lowers s by this much; three of them span every float32.
constexpr int kScaleStep = 16;

double milliseconds_since(Clock::time_point start) { return 1e3 * seconds_since(start); }

int64_t longest_document(const std::vector<data::TokenRow>& rows) {
  size_t longest = 1;
  for (const data::TokenRow& row : rows) longest = std::max(longest, row.ids.size());
  return static_cast<int64_t>(longest);
}

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

}  // namespace

/// Sums over the grains of this rank, or of all ranks after agree_on_sums().
struct Trainer::Computed {
  loss::LossSums sums;
  bool finite() const { return std::isfinite(sums.nll.value()); }
};

Trainer::Trainer(TrainSetup setup, const std::vector<data::TokenRow>& rows, const tensor::WeightFiles& weights,
                 comm::Communicator& comm, ThreadTeam& team, TrainProbes probes)
    : setup_(std::move(setup)),
      rows_(rows),
      comm_(comm),
      team_(team),
      probes_(std::move(probes)),
      order_(setup_.order),
      layout_(model::Decoder::param_specs(setup_.config)),
      decoder_(setup_.config, longest_document(rows), setup_.compute_dtype, setup_.decoder),
      params_(layout_, setup_.compute_dtype, comm.size()),
      sharded_(params_, comm, team),
      gradients_(std::make_unique<tensor::GradAccumulator>(layout_, setup_.reduction, comm.size())) {
  load(weights);
}

Trainer::~Trainer() = default;

void Trainer::load(const tensor::WeightFiles& weights) {
  stored_dtype_ = model::load_weights(layout_, weights, setup_.config.tie_word_embeddings,
                                      [&](tensor::ParamId id, const at::Tensor& stored) { sharded_.load(id, stored); },
                                      &team_);
}

PlanOptions Trainer::plan_options() const {
  const model::DecoderConfig& config = setup_.config;
  PlanOptions options;
  options.cut = setup_.cut;
  options.order = setup_.grain_order;
  options.num_ranks = comm_.size();
  options.flops_per_token = 2 * layout_.num_elements();
  options.attention_width = config.num_layers * config.num_heads * config.head_dim;
  options.vocab_size = config.vocab_size;
  return options;
}

UpdatePlan Trainer::plan(int64_t update) const { return plan_update(rows_, order_.samples(update), plan_options()); }

// One optimizer step, in the order things happen.
UpdateMetrics Trainer::run_update(int64_t update) {
  const Clock::time_point start = Clock::now();
  const UpdatePlan plan = this->plan(update);

  UpdateMetrics metrics;
  metrics.update = update;
  metrics.epoch = plan.samples.epoch_progress;
  metrics.learning_rate = setup_.adamw.learning_rate * setup_.schedule.factor(update);
  metrics.update_tokens = plan.num_tokens;
  metrics.num_samples = static_cast<int64_t>(plan.samples.rows.size());
  metrics.num_grains = static_cast<int64_t>(plan.grains.size());
  metrics.balance = data::balance(plan.costs, comm_.size() * team_.size());
  metrics.num_tokens = num_tokens_seen_ += plan.num_tokens;

  Computed total;
  const shard::ReduceOutcome reduced = reduce(plan, total, metrics);
  const auto targets = static_cast<double>(total.sums.num_targets);
  metrics.loss = total.sums.nll.value() / targets;
  metrics.entropy = total.sums.entropy.value() / targets;
  metrics.mean_token_accuracy = static_cast<double>(total.sums.num_top1) / targets;
  metrics.grad_norm = reduced.grad_norm;

  if (!reduced.non_finite.empty() || !total.finite()) {
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
shard::ReduceOutcome Trainer::reduce(const UpdatePlan& plan, Computed& total, UpdateMetrics& metrics) {
  std::vector<int> scales(static_cast<size_t>(layout_.num_params()), setup_.scale_bits);
  const std::vector<int64_t> contributions = decoder_.contributions(static_cast<int64_t>(plan.grains.size()),
                                                                    plan.num_tokens, plan.num_head_chunks);
  for (;;) {
    const Clock::time_point begin = Clock::now();
    gradients_->begin_update(scales, contributions);
    const Computed mine = compute_grains(plan);
    if (probes_.after_backward) probes_.after_backward(plan.samples.update, *gradients_);
    metrics.compute_ms += milliseconds_since(begin);

    const Clock::time_point computed = Clock::now();
    total = agree_on_sums(mine);
    shard::ReduceOutcome reduced = sharded_.reduce(*gradients_);
    metrics.reduce_ms += milliseconds_since(computed);
    if (reduced.out_of_range.empty() || !reduced.non_finite.empty()) return reduced;

    ++metrics.range_retries;
    for (const tensor::ParamId id : reduced.out_of_range) {
      int& scale = scales[static_cast<size_t>(id)];
      log::info("train", "update {}: a gradient of {} is too large for 2^-{}; computing the update again with 2^-{}",
                plan.samples.update, layout_.spec(id).name, scale, scale - kScaleStep);
      if (scale < kScaleStep) {
        throw Error::non_finite("update {}: gradients of {} exceed the range of the exact sum at every scale. Lower "
                                "--learning_rate, check the data, or use --reduction float32.",
                                plan.samples.update, layout_.spec(id).name);
      }
      scale -= kScaleStep;
    }
  }
}

Trainer::Computed Trainer::compute_grains(const UpdatePlan& plan) {
  const Network network{decoder_, params_, head_of(decoder_)};
  const std::vector<int64_t>& mine = plan.dealt[static_cast<size_t>(comm_.rank())];
  Computed computed;
  NullSink nowhere;
  std::mutex mutex;  // guards computed
  team_.run(mine.size(), [&](size_t item, int) {
    const int64_t index = mine[item];
    const data::Grain& grain = plan.grains[static_cast<size_t>(index)];
    const bool drop = probes_.drop_grain && probes_.drop_grain(plan.samples.update, index);
    tensor::GradSink& sink = drop ? static_cast<tensor::GradSink&>(nowhere) : *gradients_;
    const loss::LossSums sums = run_grain(network, make_grain(plan, grain, rows_), static_cast<double>(plan.num_targets),
                                          setup_.keep, sink, [&] {
                                            if (probes_.after_first_forward) probes_.after_first_forward();
                                          });
    const std::lock_guard lock(mutex);
    computed.sums.merge(sums);
    ++num_grains_computed_;
  });
  return computed;
}

Trainer::Computed Trainer::agree_on_sums(const Computed& mine) {
  const auto nll = mine.sums.nll.words();
  const auto entropy = mine.sums.entropy.words();
  at::Tensor packed = at::empty({2 * ExactSum::kWords + 2}, at::kLong);
  auto* words = packed.data_ptr<int64_t>();
  std::copy(nll.begin(), nll.end(), words);
  std::copy(entropy.begin(), entropy.end(), words + ExactSum::kWords);
  words[2 * ExactSum::kWords] = mine.sums.num_top1;
  words[2 * ExactSum::kWords + 1] = mine.sums.num_targets;
  comm_.all_reduce_sum(packed, "sums of the loss");

  Computed total;
  total.sums.nll = ExactSum::from_words({words, ExactSum::kWords});
  total.sums.entropy = ExactSum::from_words({words + ExactSum::kWords, ExactSum::kWords});
  total.sums.num_top1 = words[2 * ExactSum::kWords];
  total.sums.num_targets = words[2 * ExactSum::kWords + 1];
  return total;
}

void Trainer::apply(const shard::ReduceOutcome& reduced, UpdateMetrics& metrics) {
  const Clock::time_point start = Clock::now();
  optim::AdamWStep step = setup_.adamw;
  step.learning_rate = metrics.learning_rate;
  step.step = ++num_updates_applied_;
  step.grad_scale = optim::clip_scale(reduced.grad_norm, setup_.max_grad_norm);
  sharded_.step(step, *gradients_);
  metrics.optimizer_ms = milliseconds_since(start);
}

void Trainer::stop_non_finite(const UpdatePlan& plan, const shard::ReduceOutcome& reduced) {
  const Network network{decoder_, params_, head_of(decoder_)};
  std::string mine;
  for (const int64_t index : plan.dealt[static_cast<size_t>(comm_.rank())]) {
    const data::Grain& grain = plan.grains[static_cast<size_t>(index)];
    const auto report = diagnose_grain(network, make_grain(plan, grain, rows_), static_cast<double>(plan.num_targets));
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

void Trainer::finish() { gradients_.reset(); }

}  // namespace lockstep::train
