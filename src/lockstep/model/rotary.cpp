#include "lockstep/model/rotary.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace lockstep::model {
namespace {

kernels::RopeTable joined(const std::vector<kernels::RopeTable>& tables) {
  std::vector<at::Tensor> cosines, sines;
  for (const kernels::RopeTable& table : tables) {
    cosines.push_back(table.cos_PD2);
    sines.push_back(table.sin_PD2);
  }
  return {at::cat(cosines), at::cat(sines)};
}

}  // namespace

Rotary::Rotary(const DecoderConfig& config, bool local, int64_t max_positions, at::ScalarType dtype)
    : config_(config),
      local_(local),
      dtype_(dtype),
      max_positions_(max_positions),
      stable_length_(local && config.local_rope_theta > 0 ? std::numeric_limits<int64_t>::max() : rope_stable_length(config)),
      table_(table_of(1, max_positions)) {
  if (config_.rope.type == "longrope" && max_positions > stable_length_)
    table_ = joined({table_, table_of(max_positions, max_positions)});
}

kernels::RopeTable Rotary::table_of(int64_t length, int64_t num_positions) const {
  const RopeFrequencies rope = rope_frequencies(config_, local_, length);
  at::Tensor inverse_D2 = at::empty({static_cast<int64_t>(rope.inverse.size())}, at::kDouble);
  std::copy(rope.inverse.begin(), rope.inverse.end(), inverse_D2.mutable_data_ptr<double>());
  return kernels::rope_table(inverse_D2, num_positions, rope.attention_scaling, dtype_);
}

Rotary::Turn Rotary::turn(const GrainInput& grain) const {
  const auto* position = grain.position_T.const_data_ptr<int32_t>();
  const auto length = [&](size_t doc) { return int64_t{position[grain.doc_starts[doc + 1] - 1]} + 1; };
  bool stable = true;
  for (size_t doc = 0; doc + 1 < grain.doc_starts.size(); ++doc) stable = stable && length(doc) <= stable_length_;
  if (stable) return {table_, grain.position_T};

  // Rows of the longer documents follow those of the table: one further table (longrope), or one for each (dynamic).
  std::vector<kernels::RopeTable> tables{table_};
  at::Tensor row_T = grain.position_T.clone();
  auto* row = row_T.mutable_data_ptr<int32_t>();
  int64_t shift = max_positions_;
  for (size_t doc = 0; doc + 1 < grain.doc_starts.size(); ++doc) {
    if (length(doc) <= stable_length_) continue;
    for (int64_t t = grain.doc_starts[doc]; t < grain.doc_starts[doc + 1]; ++t) row[t] += static_cast<int32_t>(shift);
    if (config_.rope.type == "longrope") continue;
    tables.push_back(table_of(length(doc), length(doc)));
    shift += length(doc);
  }
  return {tables.size() == 1 ? table_ : joined(tables), row_T};
}

}  // namespace lockstep::model
