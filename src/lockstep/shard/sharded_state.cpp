// The states of a ShardedStep by name: gathered whole, or this rank's part for checkpoints.
#include "lockstep/base/error.h"
#include "lockstep/shard/sharded_step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

namespace lockstep::shard {
namespace {

using tensor::kPieceElements;
using tensor::ParamId;

}  // namespace

std::vector<std::string> ShardedStep::state_names(ParamId id) const {
  const bool is_matrix = params_.layout().spec(id).is_matrix();
  std::vector<std::string> names{kMasterState};
  for (std::string& name : optim::state_names(rule_, is_matrix)) names.push_back(std::move(name));
  if (factored_ && is_matrix) names.insert(names.end(), {optim::kRowState, optim::kColumnState});
  return names;
}

const at::Tensor* ShardedStep::replicated_state(ParamId id, std::string_view name) const {
  if (!factored_ || !params_.layout().spec(id).is_matrix()) return nullptr;
  if (name == optim::kRowState) return &factored_->row(id);
  return name == optim::kColumnState ? &factored_->column(id) : nullptr;
}

std::vector<int64_t> ShardedStep::state_shape(ParamId id, std::string_view name) const {
  std::vector<int64_t> shape = params_.layout().spec(id).shape;
  if (name == optim::kRowState) shape.pop_back();
  if (name == optim::kColumnState) shape.erase(shape.end() - 2);
  return shape;
}

const at::Tensor& ShardedStep::flat_state(int segment, std::string_view name) const {
  const Shard& shard = shards_[static_cast<size_t>(segment)];
  if (name == kMasterState) return shard.master;
  const auto found = std::find(shard.names.begin(), shard.names.end(), name);
  LS_CHECK(found != shard.names.end(), "{} has no state {}", optim::optimizer_name(rule_), name);
  return shard.states[static_cast<size_t>(found - shard.names.begin())];
}

std::pair<int64_t, int64_t> ShardedStep::owned(ParamId id) const {
  const tensor::ParamSlot& slot = params_.layout().slot(id);
  const Shard& shard = shards_[static_cast<size_t>(slot.segment)];
  const int64_t shard_begin = shard.first_piece * kPieceElements;
  const int64_t begin = std::max(slot.offset, shard_begin);
  const int64_t end = std::min(slot.offset + slot.numel, shard_begin + shard.num_pieces * kPieceElements);
  return begin < end ? std::pair(begin - slot.offset, end - slot.offset) : std::pair<int64_t, int64_t>(0, 0);
}

std::vector<OwnedState> ShardedStep::held_states(ParamId id) const {
  take_masters();  // whoever asks may read them
  const tensor::ParamSlot& slot = params_.layout().slot(id);
  const int64_t shard_begin = shards_[static_cast<size_t>(slot.segment)].first_piece * kPieceElements;
  const auto [begin, end] = owned(id);
  std::vector<OwnedState> found;
  for (const std::string& name : state_names(id)) {
    OwnedState state{.param = id, .state = name, .begin = begin, .end = end, .numel = slot.numel, .values = {}};
    const float* values = nullptr;
    if (const at::Tensor* whole = replicated_state(id, name)) {
      state.begin = 0;
      state.end = state.numel = whole->numel();
      values = whole->const_data_ptr<float>();
    } else if (begin < end) {
      values = flat_state(slot.segment, name).const_data_ptr<float>() + (slot.offset + begin - shard_begin);
    }
    state.values = {values, static_cast<size_t>(state.end - state.begin)};
    if (!state.values.empty()) found.push_back(std::move(state));
  }
  return found;
}

std::vector<OwnedState> ShardedStep::owned_states() const {
  std::vector<OwnedState> all;
  for (ParamId id = 0; id < params_.layout().num_params(); ++id) {
    const auto [begin, end] = owned(id);
    for (OwnedState& state : held_states(id)) {
      // Of what all hold whole, the owner of the tensor's first element keeps it.
      const bool keeps = replicated_state(id, state.state) == nullptr || (begin == 0 && end > 0);
      if (keeps) all.push_back(std::move(state));
    }
  }
  return all;
}

void ShardedStep::load_state(const std::function<void(const OwnedState& what, std::span<float> out)>& read) {
  std::vector<OwnedState> wanted;
  for (ParamId id = 0; id < params_.layout().num_params(); ++id) {
    for (OwnedState& state : held_states(id)) wanted.push_back(std::move(state));
  }
  if (params_.is_shared()) comm_.barrier("before new weights");  // others may still compute with the old ones
  hashes_current_ = false;
  for (Shard& shard : shards_) {
    std::fill(shard.begun.begin(), shard.begun.end(), uint8_t{1});
    std::fill(shard.lies_in_weights.begin(), shard.lies_in_weights.end(), uint8_t{0});
  }
  team_.run(wanted.size(), [&](size_t item, int) {
    const OwnedState& state = wanted[item];
    // The spans of held_states() point into this object's own tensors.
    read(state, {const_cast<float*>(state.values.data()), state.values.size()});
  });
  change_pieces([](const PieceRef&) {});  // only what follows from the masters
  all_gather_weights();
}

at::Tensor ShardedStep::gather(ParamId id, State state) {
  return gather(id, state == State::Master ? kMasterState : state == State::ExpAvg ? "exp_avg" : "exp_avg_sq");
}

at::Tensor ShardedStep::gather(ParamId id, std::string_view name) {
  take_masters();
  if (const at::Tensor* whole = replicated_state(id, name)) return whole->clone().view(state_shape(id, name));
  const tensor::ParamSlot& slot = params_.layout().slot(id);
  const Shard& shard = shards_[static_cast<size_t>(slot.segment)];
  const at::Tensor& mine = flat_state(slot.segment, name);
  // Every rank sends its part of the tensor, padded to the largest part, so that one all-gather moves it.
  const int64_t shard_elements = shard.num_pieces * kPieceElements;
  const int64_t first_rank = slot.offset / shard_elements;
  const int64_t last_rank = (slot.offset + slot.numel - 1) / shard_elements;
  const int64_t part = first_rank == last_rank ? slot.numel : shard_elements;
  at::Tensor send = at::zeros({part}, at::kFloat);
  const int64_t shard_begin = shard_elements * comm_.rank();
  const int64_t begin = std::max(slot.offset, shard_begin);
  const int64_t end = std::min(slot.offset + slot.numel, shard_begin + shard_elements);
  if (begin < end) send.narrow(0, 0, end - begin).copy_(mine.narrow(0, begin - shard_begin, end - begin));
  at::Tensor all = at::empty({part * comm_.size()}, at::kFloat);
  comm_.all_gather(send, all, "gather of a tensor");

  at::Tensor whole = at::empty({slot.numel}, at::kFloat);
  for (int64_t owner = first_rank; owner <= last_rank; ++owner) {
    const int64_t from = std::max(slot.offset, shard_elements * owner);
    const int64_t to = std::min(slot.offset + slot.numel, shard_elements * (owner + 1));
    whole.narrow(0, from - slot.offset, to - from).copy_(all.narrow(0, part * owner, to - from));
  }
  return whole.view(params_.layout().spec(id).shape);
}

int64_t ShardedStep::state_bytes() const {
  int64_t bytes = factored_ ? factored_->state_bytes() : 0;
  for (const Shard& shard : shards_) {
    bytes += static_cast<int64_t>(1 + shard.states.size()) * shard.num_pieces * kPieceElements * int64_t{sizeof(float)};
  }
  return bytes;
}

}  // namespace lockstep::shard
