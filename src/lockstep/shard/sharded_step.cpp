#include "lockstep/shard/sharded_step.h"

#include "lockstep/base/error.h"
#include "lockstep/base/profile.h"
#include "lockstep/tensor/flat_buffer.h"
#include "lockstep/tensor/round.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <utility>

namespace lockstep::shard {
namespace {

using tensor::kPieceElements;
using tensor::ParamId;

/// Pieces that one thread takes at a time: 1 MiB of float32.
constexpr int64_t kPiecesPerRun = 64;

std::span<float> floats(const at::Tensor& flat, int64_t piece, int64_t numel) {
  return {flat.data_ptr<float>() + piece * kPieceElements, static_cast<size_t>(numel)};
}

/// Not -0.0, which is a value like any other.
bool holds_zeros(std::span<const float> values) {
  static constexpr std::array<float, static_cast<size_t>(kPieceElements)> kZeros{};
  return std::memcmp(values.data(), kZeros.data(), values.size_bytes()) == 0;
}

}  // namespace

ShardedStep::ShardedStep(tensor::ParamStore& params, comm::Communicator& comm, ThreadTeam& team,
                         const optim::OptimizerRule& rule)
    : params_(params),
      comm_(comm),
      team_(team),
      rule_(rule),
      hashes_(static_cast<size_t>(params.layout().num_blocks())) {
  const tensor::ParamLayout& layout = params.layout();
  LS_CHECK(params.num_shards() == comm.size(), "{} shards for {} ranks", params.num_shards(), comm.size());
  for (int segment = 0; segment < layout.num_segments(); ++segment) {
    Shard shard;
    shard.num_pieces = layout.shard_pieces(segment, comm.size());
    shard.first_piece = shard.num_pieces * comm.rank();
    const int64_t elements = shard.num_pieces * kPieceElements;
    const at::Tensor& weights = params.segment(segment);
    shard.is_weights = weights.scalar_type() == at::kFloat;
    shard.master = shard.is_weights ? weights.narrow(0, shard.first_piece * kPieceElements, elements)
                                    : tensor::zero_flat_buffer(elements, at::kFloat);
    shard.names = optim::state_names(rule, layout.segment(segment).matrices);
    const auto pages = layout.segment(segment).by_rows ? tensor::Pages::Small : tensor::Pages::Huge;
    for (size_t i = 0; i < shard.names.size(); ++i) {
      shard.states.push_back(tensor::zero_flat_buffer(elements, at::kFloat, pages));
    }
    shard.begun.assign(static_cast<size_t>(shard.num_pieces), 0);
    shard.lies_in_weights.assign(static_cast<size_t>(shard.num_pieces), 0);
    for (int64_t first = 0; first < shard.num_pieces; first += kPiecesPerRun) {
      runs_.push_back({segment, first, std::min(kPiecesPerRun, shard.num_pieces - first)});
    }
    shards_.push_back(std::move(shard));
  }
  if (optim::is_factored(rule)) factored_ = std::make_unique<FactoredMoments>(layout, comm, team);
}

void ShardedStep::load(ParamId id, const at::Tensor& stored) {
  const tensor::ParamSlot& slot = params_.layout().slot(id);
  LS_CHECK(stored.numel() == slot.numel, "{}: {} elements stored", params_.layout().spec(id).name, stored.numel());
  const at::Tensor flat = stored.reshape({-1});
  const auto [begin, end] = owned(id);
  // In weights that all share each rank fills in what it owns.
  const auto [first, last] = params_.is_shared() ? std::pair(begin, end) : std::pair<int64_t, int64_t>(0, slot.numel);
  params_.segment(slot.segment).narrow(0, slot.offset + first, last - first).copy_(flat.narrow(0, first, last - first));
  if (begin == end) return;
  hashes_current_ = false;
  Shard& shard = shards_[static_cast<size_t>(slot.segment)];
  if (shard.is_weights) return;
  // A master takes twice the memory of bfloat16 weights that say the same, and the first step is soon enough for that.
  const bool same = stored.scalar_type() == at::kBFloat16 && params_.segment(slot.segment).scalar_type() == at::kBFloat16;
  const int64_t first_piece = (slot.offset + begin) / kPieceElements - shard.first_piece;
  const int64_t end_piece = (slot.offset + end + kPieceElements - 1) / kPieceElements - shard.first_piece;
  std::fill(shard.lies_in_weights.begin() + first_piece, shard.lies_in_weights.begin() + end_piece, same ? 1 : 0);
  if (same) return;
  shard.master.narrow(0, slot.offset + begin - shard.first_piece * kPieceElements, end - begin)
      .copy_(flat.narrow(0, begin, end - begin));
}

ShardedStep::PieceRef ShardedStep::piece_at(int segment, int64_t piece) const {
  const tensor::ParamLayout& layout = params_.layout();
  const int64_t of_segment = shards_[static_cast<size_t>(segment)].first_piece + piece;
  const ParamId param = layout.param_of_piece(segment, of_segment);
  if (param < 0) return {.segment = segment, .piece = piece};
  const tensor::ParamSlot& slot = layout.slot(param);
  const int64_t inside = of_segment * kPieceElements - slot.offset;
  return {segment, piece, param, std::min(kPieceElements, slot.numel - inside)};
}

ReduceOutcome ShardedStep::reduce(tensor::GradAccumulator& gradients) {
  sum_over_ranks(gradients);
  ExactSum squares;
  std::vector<uint8_t> non_finite(static_cast<size_t>(params_.layout().num_params()), 0);
  sum_squares(gradients, squares, non_finite);
  return agree(gradients, non_finite, squares);
}

void ShardedStep::sum_over_ranks(tensor::GradAccumulator& gradients) {
  // One rank sends nothing, so what got no contribution need not be cleared: of an embedding that is most of it.
  if (comm_.size() == 1) return;
  if (gradients.is_shared()) {
    comm_.barrier("gradients of all ranks");  // sum_squares() reads them where they lie
    return;
  }
  gradients.clear_rest(team_);
  // Last block first: its sums are complete first in a backward pass.
  for (int segment = params_.layout().num_segments() - 1; segment >= 0; --segment) {
    const Shard& shard = shards_[static_cast<size_t>(segment)];
    if (shard.num_pieces == 0) continue;
    at::Tensor& sums = gradients.segment(segment);
    at::Tensor mine = sums.narrow(0, shard.first_piece * kPieceElements, shard.num_pieces * kPieceElements);
    comm_.reduce_scatter_sum(sums, mine, "reduce-scatter of gradients");
  }
}

std::span<const float> ShardedStep::gradient_of(const PieceRef& ref, const tensor::GradAccumulator& gradients,
                                                PieceBuffer& buffer) const {
  const int64_t of_segment = shards_[static_cast<size_t>(ref.segment)].first_piece + ref.piece;
  return gradients.gradient(ref.segment, of_segment, std::span(buffer).first(static_cast<size_t>(ref.numel)));
}

std::span<const float> ShardedStep::summed_gradient_of(const PieceRef& ref, tensor::GradAccumulator& gradients,
                                                       PieceBuffer& buffer) const {
  if (!gradients.is_shared()) return gradient_of(ref, gradients, buffer);
  const int64_t of_segment = shards_[static_cast<size_t>(ref.segment)].first_piece + ref.piece;
  return gradients.sum_over_ranks(ref.segment, of_segment, std::span(buffer).first(static_cast<size_t>(ref.numel)));
}

void ShardedStep::sum_squares(tensor::GradAccumulator& gradients, ExactSum& total,
                              std::vector<uint8_t>& non_finite) const {
  std::mutex mutex;  // guards total and non_finite
  team_.run(runs_.size(), [&](size_t item, int) {
    const profile::Scope span(profile::Kind::NormPass);
    PieceBuffer buffer;
    ExactSum part;
    std::vector<ParamId> bad;
    for_each_piece(runs_[item], [&](const PieceRef& ref) {
      const double sum = optim::sum_of_squares(summed_gradient_of(ref, gradients, buffer));
      if (!std::isfinite(sum)) bad.push_back(ref.param);
      part.add(sum);
    });
    const std::lock_guard lock(mutex);
    total.merge(part);
    for (const ParamId id : bad) non_finite[static_cast<size_t>(id)] = 1;
  });
}

ReduceOutcome ShardedStep::agree(const tensor::GradAccumulator& gradients, const std::vector<uint8_t>& non_finite,
                                 const ExactSum& squares) {
  const int num_params = params_.layout().num_params();
  at::Tensor flags = at::zeros({2 * num_params}, at::kLong);
  auto* flag = flags.data_ptr<int64_t>();
  for (ParamId id = 0; id < num_params; ++id) {
    const tensor::ExactFlags seen = gradients.flags(id);
    flag[2 * id] = seen.range ? 1 : 0;
    flag[2 * id + 1] = seen.non_finite || non_finite[static_cast<size_t>(id)] != 0 ? 1 : 0;
  }
  comm_.all_reduce_max(flags, "flags of gradients");

  const auto words = squares.words();
  at::Tensor sum = at::empty({static_cast<int64_t>(words.size())}, at::kLong);
  std::copy(words.begin(), words.end(), sum.data_ptr<int64_t>());
  comm_.all_reduce_sum(sum, "norm of gradients");

  ReduceOutcome outcome;
  for (ParamId id = 0; id < num_params; ++id) {
    if (flag[2 * id] != 0) outcome.out_of_range.push_back(id);
    if (flag[2 * id + 1] != 0) outcome.non_finite.push_back(id);
  }
  outcome.grad_norm = std::sqrt(
      ExactSum::from_words({sum.data_ptr<int64_t>(), static_cast<size_t>(sum.numel())}).value());
  return outcome;
}

void ShardedStep::step(const optim::AdamWStep& step, const tensor::GradAccumulator& gradients) {
  const optim::OptimizerStep general{.rule = optim::AdamWRule{step.beta1, step.beta2, step.epsilon},
                                     .learning_rate = step.learning_rate,
                                     .weight_decay = step.weight_decay,
                                     .step = step.step,
                                     .grad_scale = step.grad_scale};
  this->step(general, gradients);
}

void ShardedStep::step(const optim::OptimizerStep& step, const tensor::GradAccumulator& gradients) {
  LS_CHECK(step.rule.index() == rule_.index(), "a step of {} on states of {}", optim::optimizer_name(step.rule),
           optim::optimizer_name(rule_));
  if (factored_) {
    step_adafactor(step, gradients);
  } else {
    step_elementwise(step, gradients);
  }
  all_gather_weights();
}

void ShardedStep::step_elementwise(const optim::OptimizerStep& step, const tensor::GradAccumulator& gradients) {
  optim::OptimizerStep no_decay = step;
  no_decay.weight_decay = 0;
  change_pieces([&](const PieceRef& ref) {
    PieceBuffer buffer;
    step_piece(params_.layout().spec(ref.param).decay ? step : no_decay, ref, gradient_of(ref, gradients, buffer));
  });
}

void ShardedStep::step_piece(const optim::OptimizerStep& step, const PieceRef& ref, std::span<const float> gradient) {
  Shard& shard = shards_[static_cast<size_t>(ref.segment)];
  uint8_t& begun = shard.begun[static_cast<size_t>(ref.piece)];
  std::array<PieceBuffer, optim::kMaxStates> room;  // in place of states that are zeros
  std::array<std::span<float>, optim::kMaxStates> states;
  for (size_t i = 0; i < shard.states.size(); ++i) {
    states[i] = begun != 0 ? floats(shard.states[i], ref.piece, ref.numel) : std::span(room[i]).first(gradient.size());
    if (begun == 0) std::fill(states[i].begin(), states[i].end(), 0.0F);
  }
  optim::step_elements(step, floats(shard.master, ref.piece, ref.numel), std::span(states).first(shard.states.size()), gradient);
  if (begun != 0) return;
  if (std::all_of(states.begin(), states.begin() + std::ssize(shard.states), holds_zeros)) return;
  begun = 1;
  for (size_t i = 0; i < shard.states.size(); ++i) {
    std::copy(states[i].begin(), states[i].end(), floats(shard.states[i], ref.piece, ref.numel).begin());
  }
}

void ShardedStep::change_pieces(const std::function<void(const PieceRef& ref)>& change) {
  hash_runs([&](const Run& run, PieceHash& hash) {
    const profile::Scope span(profile::Kind::StepPass, [&] { return step_bytes(run); });
    for_each_piece(run, [&](const PieceRef& ref) {
      take_master(ref);
      change(ref);
      round_into_weights(ref);
      add_hash(ref, hash);
    });
  });
}

int64_t ShardedStep::step_bytes(const Run& run) const {
  const auto index = static_cast<size_t>(run.segment);
  const auto floats_changed = static_cast<int64_t>(1 + shards_[index].states.size());
  const auto weight = static_cast<int64_t>(params_.segment(run.segment).element_size());
  return run.count * kPieceElements * (floats_changed * 2 * static_cast<int64_t>(sizeof(float)) + weight);
}

void ShardedStep::round_into_weights(const PieceRef& ref) {
  const Shard& shard = shards_[static_cast<size_t>(ref.segment)];
  if (shard.is_weights) return;
  at::Tensor& weights = params_.segment(ref.segment);
  const int64_t offset = (shard.first_piece + ref.piece) * kPieceElements;
  const std::span<const float> master = floats(shard.master, ref.piece, ref.numel);
  if (weights.scalar_type() == at::kBFloat16) {
    tensor::round_to_bf16({static_cast<uint16_t*>(weights.data_ptr()) + offset, master.size()}, master);
  } else {
    weights.narrow(0, offset, ref.numel).copy_(shard.master.narrow(0, ref.piece * kPieceElements, ref.numel));
  }
}

std::span<const float> ShardedStep::master_of(const PieceRef& ref, PieceBuffer& room) const {
  const Shard& shard = shards_[static_cast<size_t>(ref.segment)];
  if (shard.lies_in_weights[static_cast<size_t>(ref.piece)] == 0) return floats(shard.master, ref.piece, ref.numel);
  const std::span values = std::span(room).first(static_cast<size_t>(ref.numel));
  const auto* weights = static_cast<const uint16_t*>(params_.segment(ref.segment).const_data_ptr()) +
                        (shard.first_piece + ref.piece) * kPieceElements;
  std::transform(weights, weights + ref.numel, values.begin(),
                 [](uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); });
  return values;
}

void ShardedStep::take_master(const PieceRef& ref) const {
  Shard& shard = shards_[static_cast<size_t>(ref.segment)];
  uint8_t& lies_in_weights = shard.lies_in_weights[static_cast<size_t>(ref.piece)];
  if (lies_in_weights == 0) return;
  PieceBuffer room;
  const std::span<const float> values = master_of(ref, room);
  std::copy(values.begin(), values.end(), floats(shard.master, ref.piece, ref.numel).begin());
  lies_in_weights = 0;
}

void ShardedStep::take_masters() const {
  const auto any = [](const Shard& shard) { return std::ranges::find(shard.lies_in_weights, 1) != shard.lies_in_weights.end(); };
  if (std::ranges::none_of(shards_, any)) return;
  team_.run(runs_.size(), [&](size_t item, int) {
    for_each_piece(runs_[item], [&](const PieceRef& ref) { take_master(ref); });
  });
}

void ShardedStep::all_gather_weights() {
  if (params_.is_shared()) {
    comm_.barrier("weights of all ranks");
    return;
  }
  for (size_t segment = 0; segment < shards_.size(); ++segment) {
    const Shard& shard = shards_[segment];
    if (comm_.size() == 1 || shard.num_pieces == 0) continue;
    at::Tensor& weights = params_.segment(static_cast<int>(segment));
    const at::Tensor mine = weights.narrow(0, shard.first_piece * kPieceElements, shard.num_pieces * kPieceElements);
    comm_.all_gather(mine, weights, "all-gather of weights");
  }
}

void ShardedStep::add_hash(const PieceRef& ref, PieceHash& hash) const {
  const Shard& shard = shards_[static_cast<size_t>(ref.segment)];
  // Pieces of a block's two segments get different numbers: matrices even, vectors odd.
  const auto number = static_cast<uint64_t>(2 * (shard.first_piece + ref.piece) + ref.segment % 2);
  PieceBuffer room;
  hash.add(number, std::as_bytes(master_of(ref, room)));
}

void ShardedStep::hash_runs(const std::function<void(const Run& run, PieceHash& hash)>& work) {
  hashes_current_ = false;
  std::fill(hashes_.begin(), hashes_.end(), 0);
  team_.run(runs_.size(), [&](size_t item, int) {
    PieceHash part;
    work(runs_[item], part);
    const int block = params_.layout().segment(runs_[item].segment).block;
    std::atomic_ref(hashes_[static_cast<size_t>(block)]).fetch_add(part.value(), std::memory_order_relaxed);
  });
  hashes_current_ = true;
}

std::vector<uint64_t> ShardedStep::master_hashes() {
  if (!hashes_current_) {
    hash_runs([&](const Run& run, PieceHash& hash) {
      for_each_piece(run, [&](const PieceRef& ref) { add_hash(ref, hash); });
    });
  }
  at::Tensor sum = at::empty({std::ssize(hashes_)}, at::kLong);
  auto* words = sum.data_ptr<int64_t>();
  std::transform(hashes_.begin(), hashes_.end(), words, [](uint64_t hash) { return static_cast<int64_t>(hash); });
  comm_.all_reduce_sum(sum, "hashes of blocks");
  return {words, words + hashes_.size()};
}

}  // namespace lockstep::shard
