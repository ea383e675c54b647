#include "lockstep/tensor/param_layout.h"

#include "lockstep/base/error.h"

#include <algorithm>

namespace lockstep::tensor {
namespace {

/// One more than the largest block number. Every block from 0 on must hold a parameter.
int count_blocks(const std::vector<ParamSpec>& specs) {
  int highest = -1;
  for (const ParamSpec& spec : specs) {
    LS_CHECK(spec.block >= 0, "parameter {} is in block {}", spec.name, spec.block);
    highest = std::max(highest, spec.block);
  }
  std::vector<bool> seen(static_cast<size_t>(highest + 1), false);
  for (const ParamSpec& spec : specs) {
    seen[static_cast<size_t>(spec.block)] = true;
  }
  for (size_t block = 0; block < seen.size(); ++block) {
    LS_CHECK(seen[block], "block {} of {} has no parameter", block, seen.size());
  }
  return highest + 1;
}

}  // namespace

int64_t ParamSpec::numel() const {
  int64_t product = 1;
  for (const int64_t size : shape) {
    product *= size;
  }
  return product;
}

ParamLayout::ParamLayout(std::vector<ParamSpec> specs) : specs_(std::move(specs)), num_blocks_(count_blocks(specs_)) {
  segments_.resize(static_cast<size_t>(2 * num_blocks_));
  for (size_t index = 0; index < segments_.size(); ++index) {
    segments_[index].block = static_cast<int>(index / 2);
    segments_[index].matrices = index % 2 == 0;
  }
  slots_.reserve(specs_.size());
  for (size_t id = 0; id < specs_.size(); ++id) {
    const ParamSpec& spec = specs_[id];
    LS_CHECK(std::all_of(spec.shape.begin(), spec.shape.end(), [](int64_t size) { return size > 0; }),
             "parameter {} has an empty or negative dimension", spec.name);
    LS_CHECK(ids_.emplace(spec.name, static_cast<ParamId>(id)).second, "parameter {} is declared twice", spec.name);
    const int index = 2 * spec.block + (spec.is_matrix() ? 0 : 1);
    Segment& segment = segments_[static_cast<size_t>(index)];
    segment.by_rows = spec.by_rows && (segment.params.empty() || segment.by_rows);
    slots_.push_back({.segment = index, .offset = segment.num_pieces * kPieceElements, .numel = spec.numel()});
    segment.params.push_back(static_cast<ParamId>(id));
    segment.num_pieces += slots_.back().num_pieces();
  }
}

ParamId ParamLayout::find(const std::string& name) const {
  const auto found = ids_.find(name);
  return found == ids_.end() ? -1 : found->second;
}

int64_t ParamLayout::num_elements() const {
  int64_t total = 0;
  for (const ParamSlot& slot : slots_) {
    total += slot.numel;
  }
  return total;
}

int64_t ParamLayout::shard_pieces(int segment, int num_shards) const {
  LS_CHECK(num_shards >= 1, "num_shards = {}", num_shards);
  return (this->segment(segment).num_pieces + num_shards - 1) / num_shards;
}

ParamId ParamLayout::param_of_piece(int segment, int64_t piece) const {
  const Segment& where = this->segment(segment);
  LS_CHECK(piece >= 0, "piece = {}", piece);
  if (piece >= where.num_pieces) {
    return -1;
  }
  const auto after = std::upper_bound(
      where.params.begin(), where.params.end(), piece * kPieceElements,
      [this](int64_t element, ParamId id) { return element < slot(id).offset; });
  return *(after - 1);
}

}  // namespace lockstep::tensor
