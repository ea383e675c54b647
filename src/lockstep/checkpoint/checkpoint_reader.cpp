#include "lockstep/checkpoint/checkpoint_reader.h"

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/checkpoint_folder.h"
#include "lockstep/checkpoint/rank_files.h"

#include <algorithm>
#include <set>
#include <sstream>

namespace lockstep::checkpoint {
namespace {

struct SliceNumbers {
  int64_t begin = -1, end = -1, numel = -1;
};

/// "<begin> <end> <numel>"; nothing when it is not that.
std::optional<SliceNumbers> parse_slice(const std::map<std::string, std::string>& metadata, const std::string& name) {
  const auto found = metadata.find(name);
  if (found == metadata.end()) return std::nullopt;
  std::istringstream words(found->second);
  SliceNumbers slice;
  words >> slice.begin >> slice.end >> slice.numel;
  if (!words || slice.begin < 0 || slice.end <= slice.begin || slice.numel < slice.end) return std::nullopt;
  return slice;
}

std::string state_in(const std::string& logical_name) { return logical_name.substr(logical_name.rfind('.') + 1); }

}  // namespace

CheckpointReader::CheckpointReader(const fs::path& checkpoint) : path_(checkpoint) {
  const std::vector<std::string> problems = problems_of(path_, Verify::Sizes);
  if (!problems.empty()) {
    const std::string more = problems.size() == 1 ? "" : fmt::format(" ({} more such)", problems.size() - 1);
    throw Error::data("{}{}. Resume from another checkpoint.", problems.front(), more);
  }
  manifest_ = read_manifest(path_);
  weights_ = tensor::WeightFiles::open(path_);
  if (manifest_.weights_dtype == "float32") add_weights();
  if (!manifest_.optimizer) return;
  parts_.reserve(static_cast<size_t>(manifest_.world_size));
  for (int rank = 0; rank < manifest_.world_size; ++rank) add_part(rank);
  for (auto& [name, logical] : logical_) {
    std::sort(logical.stretches.begin(), logical.stretches.end(),
              [](const Stretch& a, const Stretch& b) { return a.begin < b.begin; });
  }
}

void CheckpointReader::add_weights() {
  for (const std::string& name : weights_->names()) {
    const at::Tensor weight = weights_->tensor(name);
    if (weight.scalar_type() != at::kFloat) {
      throw Error::data("{}: {} is not in float32, though the manifest says so. Resume from another checkpoint.",
                        weights_->file_of(name), name);
    }
    logical_[name + "." + kMaster] = {weight.numel(), {{0, weight.numel(), weight}}};
  }
}

void CheckpointReader::add_part(int rank) {
  const std::string file = part_file(rank, manifest_.world_size);
  if (manifest_.find(file) == nullptr) {
    throw Error::data("{}: names no {}, the share of rank {}. Resume from another checkpoint.",
                      (path_ / kManifestFile).string(), file, rank);
  }
  const tensor::SafetensorsFile& part = parts_.emplace_back(path_ / file);
  for (const auto& [name, entry] : part.entries()) {
    const auto slice = parse_slice(part.metadata(), name);
    if (!slice || entry.dtype != at::kFloat || entry.shape != std::vector<int64_t>{slice->end - slice->begin}) {
      throw Error::data("{}: {} is not a slice as its metadata describes it. Resume from another checkpoint.",
                        part.path().string(), name);
    }
    Logical& logical = logical_[name];
    if (!logical.stretches.empty() && logical.numel != slice->numel) {
      throw Error::data("{}: {} has {} elements here and {} in another part. Resume from another checkpoint.",
                        part.path().string(), name, slice->numel, logical.numel);
    }
    logical.numel = slice->numel;
    logical.stretches.push_back({slice->begin, slice->end, part.tensor(name)});
  }
}

std::vector<std::string> CheckpointReader::state_names() const {
  std::set<std::string> names;
  for (const auto& [name, logical] : logical_) names.insert(state_in(name));
  names.erase(kMaster);
  return {names.begin(), names.end()};
}

std::optional<int64_t> CheckpointReader::numel(const std::string& param, const std::string& state) const {
  const auto found = logical_.find(param + "." + state);
  return found == logical_.end() ? std::nullopt : std::optional(found->second.numel);
}

const CheckpointReader::Logical& CheckpointReader::find(const std::string& param, const std::string& state) const {
  const auto found = logical_.find(param + "." + state);
  if (found != logical_.end()) return found->second;
  if (!manifest_.optimizer) {
    throw Error::data("{}: was saved without the optimizer's state (--save_only_model), so training cannot go on from it. "
                      "Resume from one that has it, or start a new run from its weights: --model_name_or_path {} and another "
                      "--output_dir, without --resume_from_checkpoint.",
                      path_.string(), path_.string());
  }
  std::string names;
  for (const std::string& name : state_names()) names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  throw Error::data("{}: has no {} of {}. It holds {}; was the run made with another model or --optim?", path_.string(),
                    state, param, names.empty() ? "no optimizer state" : names);
}

void CheckpointReader::read(const std::string& param, const std::string& state, int64_t begin,
                            std::span<float> out) const {
  const Logical& logical = find(param, state);
  const int64_t end = begin + static_cast<int64_t>(out.size());
  if (begin < 0 || end > logical.numel) {
    throw Error::data("{}: {} of {} has {} elements, {} to {} were asked for. Was the run made with another model?",
                      path_.string(), state, param, logical.numel, begin, end);
  }
  auto stretch = std::upper_bound(logical.stretches.begin(), logical.stretches.end(), begin,
                                  [](int64_t element, const Stretch& one) { return element < one.end; });
  int64_t next = begin;
  for (; next < end && stretch != logical.stretches.end() && stretch->begin <= next; ++stretch) {
    const int64_t until = std::min(end, stretch->end);
    const auto* values = stretch->values.const_data_ptr<float>();
    std::copy(values + (next - stretch->begin), values + (until - stretch->begin), out.data() + (next - begin));
    next = until;
  }
  if (next == end) return;
  throw Error::data("{}: elements from {} on of {} of {} are in none of its {} parts. Resume from another checkpoint.",
                    path_.string(), next, state, param, manifest_.world_size);
}

void CheckpointReader::read_weights(const std::string& param, int64_t begin, std::span<float> out) const {
  if (numel(param, kMaster)) return read(param, kMaster, begin, out);
  const at::Tensor weight = weights_->tensor(param).flatten();
  const auto length = static_cast<int64_t>(out.size());
  if (begin < 0 || begin + length > weight.numel()) {
    throw Error::data("{}: {} has {} elements, {} to {} were asked for. Was the run made with another model?",
                      weights_->file_of(param), param, weight.numel(), begin, begin + length);
  }
  const at::Tensor wide = weight.narrow(0, begin, length).to(at::kFloat);
  std::copy_n(wide.const_data_ptr<float>(), out.size(), out.data());
}

std::string CheckpointReader::text(const std::string& name) const { return read_file(path_ / name); }

}  // namespace lockstep::checkpoint
